"""Many processes and scopes, all started at once."""

from tests.daemon import until
from tests.orders import Orders
from tests.replicas import Replicas

SCOPES = [f"scope-{number}" for number in range(18)]


class Many(Replicas):
    """Scopes with these names, each on its own collection."""

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


def test_six_processes_and_eighteen_scopes_at_once(orders: Orders) -> None:
    replicas = Many(orders, lease=5)

    def each_has_one() -> bool:
        held = [scope for each in replicas.held().values() for scope in each]
        return sorted(held) == sorted(SCOPES)

    for number in range(6):
        run = replicas.daemon(f"process-{number}")
        run.configuration |= replicas.following(*SCOPES)
        run.start(ready=False)
    for run in replicas.runs.values():
        run.until_answers()
    until(each_has_one, "an owner of each scope", 180)
    until(lambda: all(map(len, replicas.held().values())), "scopes of each process", 180)
    until(each_has_one, "an owner of each scope", 180)
    for run in replicas.runs.values():
        until(lambda run=run: run.get("/readyz")[0] == 200, "readiness", 180)  # type: ignore[misc]
    for number in range(3):
        replicas.insert(number, *SCOPES)
    for scope in SCOPES:
        replicas.until_noted(2, scope)
        replicas.assert_shared(3, scope)
    replicas.stop()
