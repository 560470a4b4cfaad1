"""What requests carry: the base of their models, and how their bodies and queries are read."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qs

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tailrace.control.outcome import ActionRefused

B = TypeVar("B", bound="Body")


@dataclass(frozen=True, slots=True)
class Metavar:
    """How the help of the shell names the value of a field."""

    name: str


class Body(BaseModel):
    """What a request carries: strict, and without unknown keys."""

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        defer_build=True,  # the shell needs the fields alone
        extra="forbid",
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
        json_schema_extra=lambda schema: _drop(schema),
    )


def _drop(schema: dict[str, Any]) -> None:
    """The summary of the route says what a model is."""
    for name in ("title", "description"):
        schema.pop(name, None)


class HandlerQuery(Body):
    handler: Annotated[str | None, Metavar("NAME")] = None
    """Only this handler of the scope; without it, all."""


class ApplyBody(HandlerQuery):
    wait: Annotated[float | None, Metavar("SECONDS")] = Field(default=None, ge=0, le=300)
    """How many seconds the answer waits for the effect, if it takes long; without it, 5. With it, a
    command ends with 1 if the effect has not come."""


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
    fields: dict[str, Any] = {}
    for name, values in parse_qs(query, keep_blank_values=True).items():
        field = model.model_fields.get(name)
        kind = field.annotation if field is not None else None
        fields[name] = values if kind == list[str] else values[-1]
        if kind in (float, float | None):
            with suppress(ValueError):
                fields[name] = float(values[-1])
        if kind is int and values[-1].isdecimal():
            fields[name] = int(values[-1][:9])
        if kind is bool:
            fields[name] = {"true": True, "false": False}.get(values[-1], values[-1])
    return fields


def _message(model: type[Body], error: ValidationError) -> str:
    """The first mistake as a sentence that says what is possible."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"])) or "the request"
    names = [field.alias or name for name, field in model.model_fields.items()]
    takes = ", ".join(names) or "nothing"
    if first["type"] == "extra_forbidden":
        return f"{where!a} is not known here, which takes: {takes}"
    return f"{where}: {first['msg'].removeprefix('Value error, ')}; this request takes: {takes}"
