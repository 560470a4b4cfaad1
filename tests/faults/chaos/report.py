"""The results of a campaign as two tables: by fault and by handler."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tailrace.observe.terminal_text import columns
from tests.faults.chaos.account import Account, Kind
from tests.faults.chaos.faults import FAULTS
from tests.faults.chaos.history import Recipient
from tests.faults.chaos.service import RECIPIENTS

_MOST_ALIKE = 3  # complaints shown: one cause produces many
_FAULTS = ("FAULT", "KILLED", "STOPPED", "IN IT", "RECOVERIES", "RESULT")
_HANDLERS = ("HANDLER", "CHANGES", "LOST", "OUT OF ORDER", "AGAIN")


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A fault, the processes that ended during or after it, and how often they recovered.

    ``kills``: whether they were killed. ``within``: whether they ended before the repair.
    """

    fault: str
    processes: range
    kills: bool
    within: bool
    recoveries: int


@dataclass(slots=True)
class Report:
    """The results of a campaign."""

    seed: int
    writers: int
    kills: int = 0
    stops: int = 0
    rounds: list[Round] = field(default_factory=list)
    account: Account = field(default_factory=Account)
    written: int = 0
    rows: int = 0
    """The rows of snapshots, over all handlers."""
    seconds: float = 0.0
    not_run: Sequence[str] = ()

    @property
    def good(self) -> bool:
        """True if nothing was lost, reordered, or repeated needlessly."""
        return not self.account.complaints

    def __str__(self) -> str:
        kinds = Counter(each.kind.value for each in self.account.complaints)
        wrong = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
        return "\n".join(
            (
                columns(_FAULTS, [self._fault(name) for name in FAULTS]),
                columns(_HANDLERS, [self._handler(each) for each in RECIPIENTS]),
                f"seed {self.seed}, {self.writers} writers, {self.kills} kills, {self.stops} clean "
                f"stops, {self.seconds:.0f} s: {self.written} changes written, "
                f"{self.account.changes} arrived; {self.rows} rows of snapshots",
                *self._wrong(),
                "Nothing lost, nothing out of order, nothing again without need."
                if self.good
                else f"COMPLAINTS: {wrong}.",
            )
        )

    def _wrong(self) -> Iterator[str]:
        """The first few complaints of each kind, by process."""
        groups: dict[tuple[int | None, Kind], list[str]] = {}
        for process, kind, text in self.account.complaints:
            groups.setdefault((process, kind), []).append(text)
        for (process, kind), texts in groups.items():
            where = "in all" if process is None else f"process {process}"
            yield from (f"{where}: {text}" for text in texts[:_MOST_ALIKE])
            if len(texts) > _MOST_ALIKE:
                yield f"{where}: and {len(texts) - _MOST_ALIKE} more {kind.value}"

    def _fault(self, name: str) -> tuple[str, ...]:
        if name in self.not_run:
            return (name, *"----", "NOT RUN: this user may not mount a disk")
        rounds = [each for each in self.rounds if each.fault == name]
        # A fault shows in the processes that ended, or in the next ones.
        processes = {
            process + more for each in rounds for process in each.processes for more in (0, 1)
        }
        wrong = sum(each.process in processes for each in self.account.complaints)
        killed = sum(each.kills for each in rounds)
        within = sum(each.within for each in rounds)
        recoveries = sum(each.recoveries for each in rounds)
        result = f"{wrong} COMPLAINTS" if wrong else "good" if rounds else "not drawn"
        return (name, *map(str, (killed, len(rounds) - killed, within, recoveries)), result)

    def _handler(self, recipient: Recipient) -> tuple[str, ...]:
        tally = self.account.tallies[recipient.name]
        name = f"{recipient.name} (owns its position)" if recipient.owns else recipient.name
        return (name, *map(str, (tally.changes, tally.lost, tally.disordered, tally.again)))
