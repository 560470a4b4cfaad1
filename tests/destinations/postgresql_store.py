"""Handlers of type ``postgresql`` on a real server, called as the engine calls them."""

from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry

from tailrace.config.delivery import DeliverySettings
from tailrace.destination.handler_type import Opening
from tailrace.destination.object_calls import ObjectCalls
from tailrace.destinations.postgresql import PostgreSQLSettings, postgresql
from tailrace.engine import Handler, RunIdentity
from tailrace.model import Scope
from tests.destinations.postgresql import PostgreSQLDestination
from tests.handlers import OWNER

SHOP = Scope("orders", "shop", None)
ORDERS = Scope("orders", "shop", "orders")


@dataclass
class Store:
    """Handlers of one database; each event is written as the engine does it."""

    server: PostgreSQLDestination
    targets: list[Any] = field(default_factory=list)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    """The metrics of the handler that was opened last."""

    async def opened(self, *scopes: Scope, **settings: Any) -> Handler:
        """A handler that has begun. Without ``log``, tables are named after collections."""
        form = {} if "log" in settings else {"table": "{collection}"}
        found = PostgreSQLSettings.model_validate(
            {"type": "postgresql", "dsn": self.server.handler["dsn"], **form, **settings}
        )
        follows = scopes or (SHOP,)
        self.registry = CollectorRegistry()
        opening = Opening("it", follows[0], DeliverySettings(), self.registry, follows)
        target = postgresql(opening, found)
        await target.__aenter__()
        self.targets.append(target)
        called = ObjectCalls("it", target, self.registry)
        handler = Handler("it", called.calls(), called.position, comparison=called.comparison)
        await begin(handler)
        return handler

    async def closed(self) -> None:
        """Closes the handlers."""
        while self.targets:
            await self.targets.pop().__aexit__()

    @property
    def orders(self) -> dict[str, Any]:
        return dict(self.server.query("SELECT key, document FROM orders"))


async def begin(handler: Handler, identity: RunIdentity = OWNER) -> Any:
    assert handler.position is not None
    return await handler.position.load(identity)
