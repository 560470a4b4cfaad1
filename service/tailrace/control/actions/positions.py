"""Shows where the handlers of a scope are and were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tailrace.control.action import Action
from tailrace.control.bodies import HandlerQuery

if TYPE_CHECKING:
    from tailrace.control.control import Control


class PositionsQuery(HandlerQuery):
    """Where the handlers of a scope are and were, the latest first: positions of days."""


async def _positions(
    control: Control, scope: str, query: HandlerQuery, by: str
) -> Mapping[str, Any]:
    from tailrace.control.seeking import positions_of

    control.subject(scope, query.handler)
    runtime = control.runtime
    return await positions_of(scope, runtime.store, runtime.orders, query.handler)


POSITIONS = Action("GET", "/scopes/{name}/positions", PositionsQuery, _positions)
