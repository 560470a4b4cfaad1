"""Tells what became of a document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from tailrace.control.action import Action
from tailrace.control.bodies import Body, Metavar
from tailrace.control.outcome import ActionRefused
from tailrace.errors import CheckpointError, DeadLetterError, describe

if TYPE_CHECKING:
    from tailrace.control.control import Control


class WhyQuery(Body):
    """What became of the last changes of a document, for each handler."""

    key: Annotated[str, Metavar("JSON")]
    """The `_id` of the document, or a document that has one, as Extended JSON."""
    collection: Annotated[str, Metavar("NAME")] = ""
    """Its collection, as `database.collection`; without one, any of the scope."""
    seconds: Annotated[float, Metavar("N")] = Field(default=5.0, gt=0, le=300)
    """How long to search the oplog, and each lake."""


async def _why(control: Control, scope: str, query: WhyQuery, by: str) -> Mapping[str, Any]:
    from tailrace.event.key import read_key
    from tailrace.why.followed import followed

    watcher = control.watcher(scope)
    elsewhere = watcher.status.reason or "another process follows the scope"
    inquiry = replace(control.inquiries[scope], followed=followed(watcher), elsewhere=elsewhere)
    try:
        answer = await inquiry.answer(read_key(query.key), query.collection, query.seconds)
    except ValueError as error:
        raise ActionRefused(400, str(error)) from error
    except (CheckpointError, DeadLetterError) as error:
        raise ActionRefused(503, describe(error)) from error
    return answer.to_document()


WHY = Action("GET", "/scopes/{name}/why", WhyQuery, _why)
