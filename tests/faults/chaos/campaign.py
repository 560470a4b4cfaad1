"""A number of rounds: each draws a fault, then ends the service by SIGKILL or SIGTERM."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.faults.chaos.account import Kind, examine
from tests.faults.chaos.faults import FAULTS, KEEPS_FROM_SAVING, NEED_A_DISK, Ground
from tests.faults.chaos.report import Report, Round
from tests.faults.chaos.service import RECIPIENTS, SCOPE, Service
from tests.faults.chaos.snapshots import examine_rows
from tests.faults.chaos.writers import Writers, connect
from tests.faults.disk import small_disk
from tests.faults.network import Network
from tests.mongod import ReplicaSet

DATABASE = "chaos"
UNCHANGED = range(10_000, 10_200)
"""Documents that exist before the start, and that only snapshots read."""
_MOST_LOG = 6000
_MEMBERS = 3
_STORE_SIZE, _FILE_SIZE = "16m", "128m"
_DRIVERS = ("motor", "pymongo")
_READ_PREFERENCES = ("primary", "primary", "secondaryPreferred")


def run(
    directory: Path,
    *,
    rounds: int,
    writers: int,
    seed: int,
    tell: Callable[[str], None],
    faults: Sequence[str] = tuple(FAULTS),
) -> Report:
    """Runs ``rounds`` rounds while ``writers`` write, waits for the last change, and examines all.

    Raises ``AssertionError`` if it cannot continue: the service ended by itself, or hangs.
    """
    began = time.monotonic()
    report = Report(seed, writers)
    with _ground(directory, seed) as ground, connect(ground.server.uri) as client:
        service, collection = ground.service, client[DATABASE][SCOPE]
        report.not_run = () if ground.disks else NEED_A_DISK
        collection.insert_many([{"_id": number, "n": 0} for number in UNCHANGED])
        service.start()
        with Writers(collection, writers, seed) as writing:
            for fault, kills in _drawn(rounds, ground, faults):
                try:
                    report.rounds.append(_round(ground, fault, kills=kills))
                except AssertionError as error:
                    error.add_note(f"in round {len(report.rounds) + 1}, {fault}; its log:")
                    error.add_note(service.said[-_MOST_LOG:])
                    raise
                tell(
                    f"{service.kills:4} kills, {service.stops:4} stops, {writing.count:6} "
                    f"changes: {fault}, {'killed' if kills else 'stopped'}"
                )
        # No change from before a clean stop comes again: one more process would show it.
        for last in (False, True):
            writing.one_more()
            if not service.has_all(writing.count):
                tell("some changes have not arrived at every handler")
            service.stop()
            if not last:
                service.start()
        account = examine(writing.written, service.processes, RECIPIENTS)
        letters = len(service.letters)
        report.rows = examine_rows(UNCHANGED, service.processes, RECIPIENTS, account)
        account.add(Kind.LOST, [f"{letters} dead letters: no event is at fault"] if letters else [])
        report.account, report.kills, report.stops = account, service.kills, service.stops
        report.written = writing.count
    report.seconds = time.monotonic() - began
    return report


@contextmanager
def _ground(directory: Path, seed: int) -> Iterator[Ground]:
    with ExitStack() as stack:
        store, file = directory / "store", directory / "file"
        disks = [
            stack.enter_context(small_disk(store, _STORE_SIZE)),
            stack.enter_context(small_disk(file, _FILE_SIZE)),
        ]
        server = ReplicaSet(directory / "server", members=_MEMBERS)
        stack.callback(server.stop)
        network = stack.enter_context(Network(server))
        service = Service(directory / "run", store, file, network.uri, DATABASE)
        stack.callback(service.discard)
        draw = random.Random(seed)
        yield Ground(server, network, service, store, file, DATABASE, all(disks), draw)


def _drawn(rounds: int, ground: Ground, faults: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Draws a fault and kill or stop for each round, every fault and every end equally often.

    The faults of each turn, and the two ends of each two rounds, come in random order.
    """
    names = [name for name in faults if ground.disks or name not in NEED_A_DISK]
    drawn, ends = list[str](), list[bool]()
    for _ in range(rounds):
        drawn = drawn or ground.draw.sample(names, len(names))
        ends = ends or ground.draw.sample([True, False], 2)
        yield drawn.pop(), ends.pop()


def _round(ground: Ground, name: str, *, kills: bool) -> Round:
    draw, service = ground.draw, ground.service
    first = len(service.processes)
    service.take_snapshot()
    service.until_more(draw.randint(5, 150))
    within = draw.random() < 0.5
    with FAULTS[name](ground):
        if within and not service.ended:
            _end(ground, kills=kills, can_save=name != KEEPS_FROM_SAVING)
    if not service.ended:
        service.until_more(draw.randint(1, 100))
        _end(ground, kills=kills)
    service.start(draw.choice(_DRIVERS), draw.choice(_READ_PREFERENCES))
    processes = range(first, len(service.processes))
    recoveries = sum(service.recovered[process] for process in processes)
    return Round(fault=name, processes=processes, kills=kills, within=within, recoveries=recoveries)


def _end(ground: Ground, *, kills: bool, can_save: bool = True) -> None:
    # The end must not always follow a written line at once, when this process looks.
    time.sleep(ground.draw.uniform(0, 0.3))
    if kills:
        ground.service.kill()
    else:
        ground.service.stop(can_save=can_save)
