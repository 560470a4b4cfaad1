"""Shows where the handlers of a scope are and were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tailrace.control.action import Action
from tailrace.control.bodies import HandlerQuery
from tailrace.observe.terminal_text import UNKNOWN, columns

if TYPE_CHECKING:
    from tailrace.control.control import Control
    from tailrace.control.offline import OfflineControl


class PositionsQuery(HandlerQuery):
    """Where the handlers of a scope are and were, the latest first: positions of days."""


async def _positions(
    control: Control | OfflineControl, scope: str, query: HandlerQuery, by: str
) -> Mapping[str, Any]:
    from tailrace.control.seeking import positions_of

    control.subject(scope, query.handler)
    return await positions_of(scope, control.checkpoints, control.desired_states, query.handler)


def _text(answer: Mapping[str, Any]) -> str:
    rows = [
        (
            position["at"] or UNKNOWN,
            ", ".join(position["handlers"]) or UNKNOWN,
            position["saved_at"][:19] + "Z",
            position["token"] or UNKNOWN,
        )
        for position in answer["positions"]
    ]
    scope = answer["scope"]
    lost = "".join(
        f"The position of handler {name!r} cannot be read: choose one with 'tailrace scopes seek "
        f"{scope} --handler {name} --at TIME'\n"
        for name in answer["unreadable"]
    )
    if not rows:
        return f"No positions of scope {scope!r} are kept.\n{lost}"
    return columns(("CLUSTER TIME", "HANDLERS", "SAVED", "TOKEN"), rows) + lost


POSITIONS = Action(
    "GET", "/scopes/{name}/positions", PositionsQuery, _positions, text=_text, offline=_positions
)
