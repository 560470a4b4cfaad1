"""The options of the data source, and its columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from enum import StrEnum

import pyarrow as pa

from tailrace.errors import PipelineRefused
from tailrace.event.namespace import Namespace
from tailrace.lake.s3 import misplaced

EARLIEST, LATEST = "earliest", "latest"


class LakeView(StrEnum):
    EVENTS = "events"
    CHANGES = "changes"


class ShownForm(StrEnum):
    """How documents are shown."""

    JSON = "json"
    """Relaxed Extended JSON."""
    CANONICAL = "canonical"
    BSON = "bson"
    VARIANT = "variant"
    """Spark's type, made of relaxed Extended JSON."""


NAMES = (
    *("lake", "scope", "starting", "collections", "documents", "view"),
    *("max_segments", "max_events"),
)
ACCESS = (
    *("aws_access_key_id", "aws_secret_access_key", "aws_session_token"),
    *("aws_region", "aws_default_region"),
    *("aws_endpoint_url", "aws_endpoint_url_s3", "aws_endpoint"),
    "aws_virtual_hosted_style_request",
)
_AWS = "aws_"
_ALIKE = 0.9
"""Names that are so much alike are one name, misspelt: two that are meant are less alike."""
_SHOWN = 40
"""How many characters of a value a message quotes."""
_MOST = 2**63 - 1
"""The greatest number of Spark's limits."""


@dataclass(frozen=True, slots=True)
class Options:
    """``since``: seconds of the cluster time with which to start, instead of a word.

    ``collections``: all if empty. ``access``: the options ``AWS_*``, which the environment
    completes. Zero is no limit.
    """

    lake: str
    scope: str
    starting: str
    since: int | None
    collections: frozenset[Namespace]
    documents: ShownForm
    view: LakeView
    max_segments: int
    max_events: int
    access: Mapping[str, str]

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> Options:
        """Reads options by their names in lower case. Raises :class:`PipelineRefused`."""
        for name in texts:
            _require_known(name)
        if not (lake := texts.get("lake", "").strip()):
            raise PipelineRefused(
                "the option 'lake' is missing: a directory, or s3://bucket/prefix"
            )
        if why := misplaced(lake, "lake"):
            raise PipelineRefused(f"lake: {why}")
        starting = texts.get("starting", EARLIEST)
        return cls(
            lake=lake,
            scope=texts.get("scope", ""),
            starting=starting.lower(),
            since=None if starting.lower() in (EARLIEST, LATEST) else _seconds(starting),
            collections=frozenset(map(_namespace, _listed(texts.get("collections", "")))),
            documents=ShownForm(_one_of(texts, "documents", ShownForm)),
            view=LakeView(_one_of(texts, "view", LakeView)),
            max_segments=_count(texts, "max_segments"),
            max_events=_count(texts, "max_events"),
            access={n.upper(): value for n, value in texts.items() if n.startswith(_AWS)},
        )


def require_valid(texts: Mapping[str, str]) -> None:
    """Raises :class:`PipelineRefused` for a wrong option, before a job starts."""
    Options.of(texts)


def schema_of(texts: Mapping[str, str]) -> str:
    """The columns in Spark's words. Also checks that the lake and the scope are there."""
    from tailrace.spark.landed import LandedFiles

    options = Options.of(texts)
    LandedFiles.open(options).scopes()
    return ", ".join(f"{name} {kind}" for name, kind in columns(options).items())


def columns(options: Options) -> Mapping[str, str]:
    """The columns of a view, in order, with their types in Spark."""
    kinds = {ShownForm.BSON: "binary", ShownForm.VARIANT: "variant"}
    document = kinds.get(options.documents, "string")
    return {name: kind or document for name, kind in _COLUMNS[options.view].items()}


def arrow_schema(options: Options) -> pa.Schema:
    """The columns as Spark takes them in record batches."""
    return pa.schema([(name, _ARROW[kind]) for name, kind in columns(options).items()])


def document_type(form: ShownForm) -> pa.DataType:
    """The type of a column of documents."""
    return {ShownForm.BSON: pa.binary(), ShownForm.VARIANT: _VARIANT}.get(form, pa.string())


_EVENTS = {
    "scope": "string",
    "segment": "bigint",
    "ordinal": "bigint",
    "cluster_time": "timestamp",
    "cluster_increment": "bigint",
    "wall_time": "timestamp",
    "operation": "string",
    "database": "string",
    "collection": "string",
    "key": "string",
    "document_key": "",
    "document": "",
    "document_before": "",
    "update_description": "",
    "extra": "",
    "token": "binary",
}
_CHANGES = {
    "database": "string",
    "collection": "string",
    "key": "string",
    "operation": "string",
    "document": "",
    "cluster_time": "timestamp",
    "sequence": "string",
    "scope": "string",
}
_COLUMNS = {LakeView.EVENTS: _EVENTS, LakeView.CHANGES: _CHANGES}
_VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)
"""As pyspark.sql.pandas.types writes it."""
_ARROW: Mapping[str, pa.DataType] = {
    "variant": _VARIANT,
    "string": pa.string(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
}


def _listed(text: str) -> list[str]:
    return [name for each in text.split(",") if (name := each.strip())]


def _namespace(name: str) -> Namespace:
    database, _, collection = name.partition(".")
    if not database or not collection:
        raise PipelineRefused(f"collections: {name!r} is not database.collection")
    return Namespace(database, collection)


def _one_of(texts: Mapping[str, str], name: str, values: type[StrEnum]) -> str:
    known = [each.value for each in values]
    value = texts.get(name, known[0]).lower()
    if value not in known:
        raise PipelineRefused(f"{name}: {value!r} is not one of {', '.join(known)}")
    return value


def _require_known(name: str) -> None:
    """Other variables of AWS are as harmless as in an environment, but for misspelt ones."""
    if name in NAMES or name in ACCESS:
        return
    alike = get_close_matches(name, ACCESS, n=1, cutoff=_ALIKE)
    if not name.startswith(_AWS) or alike:
        meant = f" (is {alike[0].upper()} meant?)" if alike else ""
        known = ", ".join((*NAMES, *map(str.upper, ACCESS)))
        raise PipelineRefused(
            f"unknown option {name!r} of the format tailrace{meant}: it knows {known}"
        )


def _count(texts: Mapping[str, str], name: str) -> int:
    text = texts.get(name)
    if text is None:
        return 0
    digits = text.strip()
    is_number = digits.isdecimal() and len(digits) <= len(str(_MOST))
    if not is_number or not 1 <= (count := int(digits)) <= _MOST:
        raise PipelineRefused(f"{name}: {text[:_SHOWN]!r} is not a number from 1 to {_MOST}")
    return count


def _seconds(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise PipelineRefused(
            f"starting: {text!r} is not earliest, latest or a time such as 2026-01-31T12:00:00Z"
        ) from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    if at > datetime.now(UTC):
        raise PipelineRefused(f"starting: {at.isoformat()} is in the future")
    return max(0, int(at.timestamp()))
