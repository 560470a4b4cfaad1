"""Two daemons under one name: the second one is refused while the first one is alive."""

from tests.orders import Orders
from tests.replicas import Replicas


def test_a_second_daemon_of_a_name_is_refused_and_starts_after_a_crash_of_the_first(
    orders: Orders,
) -> None:
    """The first one keeps its scope meanwhile."""
    replicas = Replicas(orders, lease=2)
    (first,) = replicas.start("west")
    owner = replicas.until_owner(first)
    second = replicas.daemon("other")
    second.configuration["replicas"]["name"] = "west"
    second.start(ready=False)
    assert second.wait() == 1
    (refused,) = second.logged("service.refused")
    assert "another process is alive under the name 'west', on host " in refused["reason"]
    assert replicas.owners() == [owner]
    first.kill()
    second.start()
    replicas.until_owner(second)
    assert second.stop() == 0
