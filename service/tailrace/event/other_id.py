"""Events whose ``_id`` is not their token, because that would tell its document key."""

from __future__ import annotations

from tailrace.event.change_event import ChangeEvent
from tailrace.model.token import ResumeToken


class OtherId(ChangeEvent):
    """An event with the token of the event that it was made of."""

    __slots__ = ("_token",)

    def __init__(self, raw: bytes, token: ResumeToken) -> None:
        super().__init__(raw)
        self._token = token

    @property
    def token(self) -> ResumeToken:
        return self._token

    def fresh(self) -> ChangeEvent:
        return OtherId(self._buffer, self._token)


def with_raw(event: ChangeEvent, raw: bytes) -> ChangeEvent:
    """The same event with other fields."""
    return OtherId(raw, event.token) if isinstance(event, OtherId) else ChangeEvent(raw)
