"""Which stages of a pipeline leave a change as ``full_document: lookup`` needs it.

Tailrace looks documents up after the pipeline, the server's ``updateLookup`` before it. Both give
the same only if the pipeline neither reads the document, nor changes it or what finds it. So stages
are accepted from a list: a stage that is not on it, or an operator that may read a whole event, is
refused.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tailrace.config.fields import from_environment

_NEEDED = ("_id", "operationType", "ns", "documentKey", "fullDocument")
"""The parts of an event by which a document is found, and the document. ``clusterTime`` may be
missing, as the token has it, but must not be another time."""

_INSTEAD = "use full_document: updateLookup"
_WHOLE = frozenset({"$$ROOT", "$$CURRENT"})
_READS_WHOLE = frozenset({"$getField", "$function", "$accumulator", "$where", "$jsonSchema"})
"""Operators that may read the whole event or a field with a computed name."""

_IS_DOCUMENT = re.compile(r"(\$|\$\$(ROOT|CURRENT)\.)?fullDocument(\.|\Z)").match


def refusal(stage: Any) -> str:
    """Why a stage is refused, after its path; empty if it is accepted."""
    if not isinstance(stage, Mapping) or len(stage) != 1:
        return ""  # the model reports it
    [(name, argument)] = stage.items()
    match name:
        case "$match":
            return _reads(argument)
        case "$addFields" | "$set":
            return _sets(name, argument)
        case "$unset":
            return _touches(name, [argument] if isinstance(argument, str) else argument)
        case "$project":
            return _projects(argument)
        case "$changeStreamSplitLargeEvent":
            return ""
    return (
        f"full_document: lookup does not accept {name}, which may change what documents are found "
        "by, or the document: $match, $addFields, $set, $unset and $project are accepted, for "
        f"other fields. Or {_INSTEAD}"
    )


def _projects(projection: Any) -> str:
    if not isinstance(projection, Mapping):
        return ""  # the server refuses it
    rest = {name: each for name, each in projection.items() if name != "_id" or not _includes(each)}
    if rest and all(map(_excludes, rest.values())):
        return _touches("$project", rest)
    included = {name for name, value in projection.items() if _includes(value)}
    included |= {"_id"} - {str(name).partition(".")[0] for name in projection}
    if missing := [name for name in _NEEDED if name not in included]:
        return (
            f"$project removes or changes {', '.join(missing)}, which full_document: lookup needs: "
            f"include each with the value 1, or exclude other fields, or {_INSTEAD}"
        )
    computed = {name: value for name, value in projection.items() if not _includes(value)}
    return _sets("$project", computed)


def _sets(name: str, given: Any) -> str:
    return _touches(name, given, (*_NEEDED, "clusterTime")) or _reads(given)


def _touches(name: str, fields: Any, names: Iterable[str] = _NEEDED) -> str:
    """Refuses a stage that names one of the fields or a part of it."""
    for field in fields if isinstance(fields, Mapping | list | tuple) else ():
        root = str(field).partition(".")[0]
        if root in names:
            return (
                f"{name} changes or removes {root}, which full_document: lookup needs to find and "
                f"add the document; leave it as it is, or {_INSTEAD}"
            )
    return ""


def _reads(argument: Any) -> str:
    """Refuses a condition or an expression that reads the document, or may read it."""
    for word in _words(argument):
        if _IS_DOCUMENT(word):
            return (
                "names fullDocument, which updates get only after the pipeline with "
                "full_document: lookup; use documentKey or updateDescription, or "
                "full_document: updateLookup"
            )
        if word in _WHOLE or word in _READS_WHOLE:
            return (
                f"{word} may read the whole event, and updates get fullDocument only after the "
                f"pipeline with full_document: lookup; name single fields, or {_INSTEAD}"
            )
    return ""


def _excludes(value: Any) -> bool:
    value = from_environment(value)
    if isinstance(value, Mapping):
        return bool(value) and all(map(_excludes, value.values()))
    return isinstance(value, bool | int | float) and not value


def _includes(value: Any) -> bool:
    value = from_environment(value)
    return isinstance(value, bool | int | float) and bool(value)


def _words(value: Any) -> Iterator[str]:
    """Every key and every text value in a stage."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield str(name)
            yield from _words(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _words(item)
