"""What an answer of the endpoint means: done, an outage, or a refusal."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from tailrace.destination.secret import masked_line
from tailrace.errors import PermanentError, Refused, Unavailable

LONGEST_WAIT_SECONDS = 3600.0
"""A greater ``Retry-After`` counts as this: a scope must not wait for days by mistake."""

_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class EndpointAnswer:
    """An answer that was read. ``body`` is its beginning; ``redirect`` is where it points to."""

    status: int
    retry_after: str | None = None
    body: bytes = b""
    redirect: str | None = None


class RequestFailed(Unavailable):
    """The endpoint fails, perhaps for what is in the request: see :mod:`lone_failures`."""


_QUOTA = 429
"""About how many requests come, whatever is in them (RFC 6585, 4)."""


def require_accepted(
    answer: EndpointAnswer, refused_statuses: Collection[int], events: int
) -> None:
    """Raises for an answer that does not accept a request with so many events.

    :class:`Refused` for one event, or for those that the answer lists; :class:`PermanentError` if
    one of several events is refused and the answer does not say which, so that the engine sends
    them one by one; :class:`Unavailable` for everything else, and :class:`RequestFailed` where that
    may lie in the request.
    """
    status = answer.status
    if 200 <= status < 300:
        return
    text = masked_line(answer.body.decode("utf-8", "replace"), _LONGEST_REASON)
    said = f"the endpoint answers {status}"
    message = f"{said}: {text}" if text else said
    if answer.redirect is not None:
        where = masked_line(answer.redirect, _LONGEST_REASON)
        message = f"the endpoint redirects ({status}) to {where}, which is not followed: change url"
    elif status in refused_statuses:
        if events == 1:
            raise Refused({0: message})
        if listed := _listed(answer.body, events):
            raise Refused({at: f"{said}: {why}" if why else said for at, why in listed.items()})
        raise PermanentError(f"{message}. It does not say which of the {events} events it refuses")
    elif status != _QUOTA and answer.retry_after is None:
        raise RequestFailed(message)
    raise Unavailable(message, retry_after=retry_seconds(answer.retry_after))


def _listed(body: bytes, events: int) -> Mapping[int, str]:
    """The refused events by index, as in ``{"refused": [{"index": 0, "reason": "…"}]}``."""
    try:
        listed = json.loads(body)["refused"]
        found = {each["index"]: each.get("reason") for each in listed}
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return {}
    if not all(type(at) is int and 0 <= at < events for at in found):
        return {}
    return {at: masked_line(str(why or ""), _LONGEST_REASON) for at, why in found.items()}


def retry_seconds(header: str | None) -> float | None:
    """The seconds in ``Retry-After``, a number or a date; ``None`` if it says nothing of use.

    Source: RFC 9110, 10.2.3.
    """
    if header is None:
        return None
    text = header.strip()
    if text.isascii() and text.isdigit():
        seconds = float(text)
    else:
        try:
            moment = parsedate_to_datetime(text)
        except ValueError:
            return None
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        seconds = (moment - datetime.now(UTC)).total_seconds()
    return min(seconds, LONGEST_WAIT_SECONDS) if seconds > 0 else None
