"""Many processes and scopes: all started at once, and replaced one by one."""

from tailrace.model.lease import Member
from tailrace.replicas.assignment import assignment
from tests.daemon import until
from tests.orders import Orders
from tests.replicas import Replicas

SCOPES = [f"scope-{number}" for number in range(40)]


class Many(Replicas):
    """Scopes with these names, each on its own collection."""

    def owner_of(self, scope: str) -> list[str]:
        return [run.directory.name for run in self.owners(scope)]

    def epoch(self, scope: str) -> int:
        """The epoch that the owner reports."""
        return int(self.until_owner(scope=scope).status(scope)["lease"]["epoch"])

    def held(self) -> dict[str, list[str]]:
        """By process, the scopes that it reports as held."""
        found: dict[str, list[str]] = {}
        for name, run in self.runs.items():
            text = run.get("/metrics")[1]
            held = [line for line in text.splitlines() if line.startswith("tailrace_lease_held{")]
            found[name] = [line.split('"')[1] for line in held if line.endswith(" 1.0")]
        return found

    def insert(self, number: int, *scopes: str) -> None:
        for scope in scopes:
            self.orders.insert(number, collection=scope)


def each_has_one(held: dict[str, list[str]], scopes: list[str]) -> bool:
    return sorted(scope for each in held.values() for scope in each) == sorted(scopes)


def test_ten_processes_and_forty_scopes_at_once(orders: Orders) -> None:
    replicas = Many(orders, lease=5)
    for number in range(10):
        run = replicas.daemon(f"process-{number}")
        run.configuration |= replicas.following(*SCOPES)
        run.start(ready=False)
    for run in replicas.runs.values():
        run.until_answers()
    until(lambda: each_has_one(replicas.held(), SCOPES), "an owner of each scope", 180)
    until(lambda: all(map(len, replicas.held().values())), "scopes of each process", 180)
    until(lambda: each_has_one(replicas.held(), SCOPES), "an owner of each scope", 180)
    for run in replicas.runs.values():
        until(lambda run=run: run.get("/readyz")[0] == 200, "readiness", 180)  # type: ignore[misc]
    for number in range(3):
        replicas.insert(number, *SCOPES)
    for scope in SCOPES:
        replicas.until_noted(2, scope)
        replicas.assert_shared(3, scope)
    replicas.stop()


def test_a_rolling_restart_moves_each_scope_away_and_back(orders: Orders) -> None:
    """A process that has its fair share already passes a scope on: one move more for each stop."""
    replicas = Many(orders, lease=5)
    names, scopes = ("one", "two", "three"), SCOPES[:8]
    for name in names:
        run = replicas.daemon(name)
        run.configuration |= replicas.following(*scopes)
        run.start()
    wanted = assignment(scopes, [Member(name, name) for name in names])
    assert set(wanted.values()) == set(names)

    def balanced() -> bool:
        return all(replicas.owner_of(scope) == [wanted[scope]] for scope in scopes)

    until(balanced, "the balance", 120)
    before = {scope: replicas.epoch(scope) for scope in scopes}
    for number, name in enumerate(names):
        run = replicas.runs[name]
        assert run.stop() == 0, run.log
        replicas.insert(number, *scopes)
        run.start()
        until(lambda: each_has_one(replicas.held(), scopes), "an owner of each scope")
    until(balanced, "the balance again", 120)
    replicas.insert(3, *scopes)
    for scope in scopes:
        replicas.until_noted(3, scope)
        replicas.assert_shared(4, scope)
    moved = {scope: replicas.epoch(scope) - before[scope] for scope in scopes}
    assert min(moved.values()) >= 1
    assert max(moved.values()) <= 3, moved
    assert sum(moved.values()) <= 2 * len(scopes) + len(names), moved
    replicas.stop()
