"""What an action is: where it is asked for, its request, and what performs it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.control.bodies import Body
from tailrace.observe.exchange import Pace

if TYPE_CHECKING:
    from tailrace.control.control import Control
    from tailrace.control.offline import OfflineControl
    from tailrace.control.outcome import Done

    Reply = Done | Mapping[str, Any] | str

Values = Mapping[str, str]
"""The values of the parts of a path in braces."""


@dataclass(frozen=True, slots=True)
class View:
    """What the process shows of itself at a path, which :mod:`tailrace.control.api` answers.

    ``summary`` is a sentence for the OpenAPI document and docs/http.md.
    """

    path: str
    summary: str
    pace: Pace = Pace.IN_TURN
    gives: str = "application/json"

    method = "GET"
    request = None
    status = 200


def message_of(answer: Mapping[str, Any]) -> str:
    """What was done, for people."""
    return f"{answer['message']}\n"


@dataclass(frozen=True, slots=True)
class Action:
    """What an operator asks for. ``path`` has at most one part in braces: what it is about.

    A ``POST`` changes something, which needs the right to, and answers with a :class:`Done`; a
    ``GET`` only asks the store or a server, and answers with what only operators may see. The
    docstring of ``request`` is the summary. ``perform`` gets what the action is about, the request,
    and who asks. In the shell, ``text`` is what is printed of an answer, and ``offline`` stands in
    where no daemon runs.
    """

    method: str
    path: str
    request: type[Body]
    perform: Callable[[Control, str, Any, str], Awaitable[Reply]]
    pace: Pace = Pace.WAITS
    text: Callable[[Mapping[str, Any]], str] = message_of
    offline: Callable[[OfflineControl, str, Any, str], Awaitable[Reply]] | None = None

    gives = "application/json"

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def changes(self) -> bool:
        """Whether it needs the right to change something."""
        return self.method == "POST"

    @property
    def status(self) -> int:
        """The status of its answer if all is well."""
        return 202 if self.changes else 200

    @property
    def summary(self) -> str:
        """What it does, in one line."""
        return " ".join((self.request.__doc__ or "").split())


Route = View | Action


def values_in(path: str, route: Route) -> Values | None:
    """The values in a path; ``None`` if it is not that of the route."""
    pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(route.path))
    matched = re.fullmatch(pattern, path)
    return matched.groupdict() if matched else None
