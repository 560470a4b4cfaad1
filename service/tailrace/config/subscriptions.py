"""The subscriptions of a configuration: the handlers of each scope, and how each of them begins."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, TypeVar

from bson.timestamp import Timestamp

from tailrace.config.scopes import RouteSettings, ScopeSettings
from tailrace.config.settings import Settings
from tailrace.config.snapshots import SnapshotSettings
from tailrace.config.verification import VerificationSettings
from tailrace.model import ResumeToken, Route, StartPoint

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Beginning:
    """How a handler of a scope begins that has no position.

    ``start_path``, ``snapshot_path``: the keys of the file that say so, or that would.
    """

    start: StartPoint
    snapshot: SnapshotSettings
    start_path: str = ""
    snapshot_path: str = ""

    def same_as(self, other: "Beginning") -> bool:
        """Whether handlers that begin so may begin together."""
        return (self.start, self.snapshot) == (other.start, other.snapshot)


def beginning_of(scope: ScopeSettings, path: str = "") -> Beginning:
    """How the handlers begin whose routes do not say otherwise."""
    return Beginning(start_point(scope), scope.snapshot, f"{path}.start_at", f"{path}.snapshot")


def beginnings(settings: Settings, scope: ScopeSettings) -> Mapping[str, Beginning]:
    """How each handler of the scope begins, by name."""
    index = next(n for n, each in enumerate(settings.scopes) if each.name == scope.name)
    usual, by_handler = beginning_of(scope, f"scopes[{index}]"), dict[str, Beginning]()
    for number, route in enumerate(settings.routes):
        for handler in route.handlers if route.scope == scope.name else ():
            begins = by_handler.get(handler, usual)
            if route.start_at is not None:
                start, path = StartPoint(at_operation_time=_time(route.start_at)), "start_at"
                begins = replace(begins, start=start, start_path=f"routes[{number}].{path}")
            if route.snapshot is not None:
                path = f"routes[{number}].snapshot"
                begins = replace(begins, snapshot=route.snapshot, snapshot_path=path)
            by_handler[handler] = begins
    return by_handler


def rounds(settings: Settings) -> Mapping[tuple[str, str], VerificationSettings]:
    """By scope and handler, how often its rows are compared."""
    return _by_handler(settings, lambda route: route.verify)


def max_lags(settings: Settings) -> Mapping[tuple[str, str], float]:
    """By scope and handler, by how many seconds it may be behind."""
    return _by_handler(settings, lambda route: route.max_lag)


def _by_handler(
    settings: Settings, said: Callable[[RouteSettings], T | None]
) -> Mapping[tuple[str, str], T]:
    """By scope and handler, what a route says of it, if one says so."""
    return {
        (route.scope, handler): value
        for route in settings.routes
        if (value := said(route)) is not None
        for handler in route.handlers
    }


def routes_of(settings: Settings) -> Sequence[Route]:
    """The routes of all scopes."""
    return [
        Route(
            route.scope,
            tuple(route.handlers),
            frozenset(route.operations or ()),
            tuple(route.namespaces or ()),
        )
        for route in settings.routes
    ]


def start_point(scope: ScopeSettings) -> StartPoint:
    """Where a scope starts if it has no checkpoint. The server refuses conflicting options."""
    return StartPoint(
        resume_after=ResumeToken.of(scope.resume_after) if scope.resume_after else None,
        start_after=ResumeToken.of(scope.start_after) if scope.start_after else None,
        at_operation_time=_time(scope.start_at),
    )


def _time(start_at: datetime | Literal["now"]) -> Timestamp | None:
    return Timestamp(int(start_at.timestamp()), 0) if isinstance(start_at, datetime) else None


def catch_up_streams(settings: Settings, scope: str) -> int:
    """How many streams a scope may open beside its shared one, which one handler stays on."""
    handlers = {n for each in settings.routes if each.scope == scope for n in each.handlers}
    return max(min(settings.catch_up.streams, len(handlers) - 1), 0)


def most_streams(settings: Settings) -> int:
    """How many streams all scopes may have open at once."""
    return sum(1 + catch_up_streams(settings, scope.name) for scope in settings.scopes)
