"""What requests may carry: the models of their bodies and queries, and how these are read."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qs

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tailrace.control.outcome import ActionRefused

B = TypeVar("B", bound="Body")


class Body(BaseModel):
    """What a request carries: strict, and without unknown keys."""

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
        json_schema_extra=lambda schema: schema.pop("title", None) and None,
    )


class HandlerQuery(Body):
    handler: str | None = None
    """Only this handler of the scope; without it, all."""


class OrderBody(HandlerQuery):
    wait: float | None = Field(default=None, ge=0, le=300)
    """How many seconds the answer waits for the effect, if it takes long; without it, 5."""


class SnapshotBody(HandlerQuery):
    action: Literal["start", "pause", "resume", "cancel"] = "start"
    """What to do with the scope's snapshot."""
    collections: list[str] = Field(default=[], max_length=1000)
    """`start`: only these collections; without any, all of the scope."""
    filter: str = ""
    """`start`: only documents that match this filter, in Extended JSON."""


class WhyQuery(Body):
    key: str
    """The `_id` of the document, or a document that has one, as Extended JSON."""
    collection: str = ""
    """Its collection, as `database.collection`; without one, any of the scope."""
    seconds: float = Field(default=5.0, gt=0, le=300)
    """How long to search the oplog, and each lake."""


class SeekBody(OrderBody):
    at: str | None = None
    """A time in ISO 8601 with its zone: changes from that second on come."""
    token: str | dict[str, Any] | None = None
    """A resume token, as `positions` shows them: changes after it come."""
    undo: bool = False
    """Where the scope was before its last seek."""
    dry_run: bool = False
    """Only say what would come again or be skipped."""


class ReplayBody(Body):
    since: str | None = Field(default=None, alias="from")
    """A time in ISO 8601 with its zone: changes from that second on."""
    to: str | None = None
    """Changes up to this time and in its second; without one, up to now."""
    handler: str | None = None
    """The handler that gets them, which must be one of the scope."""
    collections: list[str] = Field(default=[], max_length=1000)
    """Only changes of these collections (`name` or `database.name`); without any, all."""
    keys: list[str] = Field(default=[], max_length=100)
    """Only changes of the documents with these `_id`s, each as Extended JSON; without any, all."""
    dry_run: bool = False
    """Only say what would be replayed."""
    cancel: bool = False
    """End the replay that is running."""


class LetterFilter(Body):
    scope: str | None = None
    """Only dead letters of this scope."""
    handler: str | None = None
    """Only dead letters of this handler."""
    key: str | None = None
    """Only those of the document with this `_id`, as Extended JSON."""
    error: str | None = None
    """Only those whose error contains this text."""
    ids: list[str] = Field(default=[], max_length=1000)
    """Only those with these ids."""
    after: str = Field(default="", max_length=1000)
    """The `next` of the last answer: goes on where that ended."""


class LettersQuery(LetterFilter):
    limit: int = Field(default=100, ge=1, le=1000)
    """At most so many, and fewer if their events are large; `count` is that of all."""
    events: bool = True
    """`false`: without their events and keys, which may be large."""


class LettersBody(LetterFilter):
    dry_run: bool = False
    """Only say what would be done."""


class LetterBody(Body):
    scope: str | None = None
    """Only of this scope: the event may wait in several."""
    handler: str | None = None
    """Only of this handler: the event may wait for several."""


class ReloadBody(Body):
    dry_run: bool = False
    """Only say what would change, by scope and by handler."""


def read_body(model: type[B], body: bytes, query: str) -> B:
    """What a request carries: the JSON object of its body, and its query.

    Raises :class:`ActionRefused`.
    """
    try:
        fields = _fields(model, query)
        if body:
            return model.model_validate_json(json.dumps({**fields, **_object(body)}))
        return model.model_validate(fields)
    except ValidationError as error:
        raise ActionRefused(400, _message(model, error)) from error


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ActionRefused(400, f"the body is not JSON ({error}): send a JSON object") from error
    if not isinstance(found, dict):
        raise ActionRefused(400, "the body is not a JSON object: send one, as {}")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a key is given twice")
    return found


def _fields(model: type[Body], query: str) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for name, values in parse_qs(query, keep_blank_values=True).items():
        field = model.model_fields.get(name)
        kind = field.annotation if field is not None else None
        found[name] = values if kind == list[str] else values[-1]
        if kind in (float, float | None):
            with suppress(ValueError):
                found[name] = float(values[-1])
        if kind is int and values[-1].isdecimal():
            found[name] = int(values[-1][:9])
        if kind is bool:
            found[name] = {"true": True, "false": False}.get(values[-1], values[-1])
    return found


def _message(model: type[Body], error: ValidationError) -> str:
    """The first mistake as a sentence that says what is possible."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"])) or "the request"
    names = [field.alias or name for name, field in model.model_fields.items()]
    takes = ", ".join(names) or "nothing"
    if first["type"] == "extra_forbidden":
        return f"{where!a} is not known here, which takes: {takes}"
    return f"{where}: {first['msg'].removeprefix('Value error, ')}; this request takes: {takes}"
