"""Loads and checks a configuration file. All its problems are reported at once."""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, ValidationError

from tailrace.config.checks import check
from tailrace.config.document import Document, Location, read
from tailrace.config.fields import Section, empty_is_none
from tailrace.config.handlers import AnyHandlerSettings, HandlerModels
from tailrace.config.includes import include
from tailrace.config.interpolation import Unresolved
from tailrace.config.messages import findings_of, path_of
from tailrace.config.pipeline import PipelineSettings
from tailrace.config.settings import HttpSettings, Settings, model_of
from tailrace.config.store import AnyStore, SqliteStoreSettings
from tailrace.errors import ConfigurationError, Problem
from tailrace.masking import keep_secret, secrets_of

S = TypeVar("S", bound=Section)

_SECRETS = (("mongodb", "uri"), ("http", "token"))
"""Keys that may be read from a file, which the same key with ``_file`` names."""

_LAST_PART = re.compile(r"(\.[^.\[]+|\[[^\[]*\])\Z")

LARGEST = 2**20
"""The largest file that is read, in bytes: what a Kubernetes ConfigMap can hold. A larger file (a
log, a device) could use up the memory of a small container."""


def load(
    path: str | os.PathLike[str],
    handler_models: HandlerModels,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """The settings of a file. From now on its secrets are masked in all output.

    The handlers of a process have the types of :func:`tailrace.handlers.types.handler_models`.
    Raises :class:`ConfigurationError` with every problem that can be seen from the file alone.
    """
    source = os.fspath(path)
    settings = loads(_file(source), handler_models, environ, source=source)
    token, uri = settings.http.token, settings.mongodb.uri.get_secret_value()
    keep_secret(token.get_secret_value() if token else "", *secrets_of(uri))
    return settings


def loads(
    text: str,
    handler_models: HandlerModels,
    environ: Mapping[str, str] | None = None,
    *,
    source: str = "",
) -> Settings:
    """The settings of a YAML text; see :func:`load`."""
    document = _sections(text, environ, source)
    findings = document.findings
    for section, key in _SECRETS:
        _read_secret(document, section, key)
    model = model_of(_handler_types(document, handler_models))
    settings = None
    try:
        settings = model.model_validate(document.data)
    except ValidationError as error:
        findings.extend(findings_of(error, model))
    findings.extend(check(document.data))
    if findings or settings is None:
        raise _refused(document, source)
    return settings


class _PipelineOnly(Section):
    """What ``tailrace pipeline`` reads."""

    pipeline: PipelineSettings = Field(default_factory=PipelineSettings)


class ServedSettings(Section):
    """Where a daemon is asked, and with what token: all that ``tailrace health`` reads."""

    http: HttpSettings = Field(default_factory=HttpSettings)

    store: AnyStore = Field(default_factory=SqliteStoreSettings)


def load_pipeline(
    path: str | os.PathLike[str], environ: Mapping[str, str] | None = None
) -> PipelineSettings:
    """The section ``pipeline`` of a file; see :func:`_load_only`."""
    return _load_only(_PipelineOnly, path, environ).pipeline


def load_served(
    path: str | os.PathLike[str], environ: Mapping[str, str] | None = None
) -> ServedSettings:
    """The sections ``http`` and ``store`` of a file; see :func:`_load_only`."""
    return _load_only(ServedSettings, path, environ)


def _load_only(
    model: type[S], path: str | os.PathLike[str], environ: Mapping[str, str] | None
) -> S:
    """The sections of a file that ``model`` has.

    Other sections are not checked, and their variables need not be set. Raises
    :class:`ConfigurationError` with every other problem.
    """
    source = os.fspath(path)
    document = _sections(_file(source), environ, source)
    others = Settings.by_key().keys() - model.by_key().keys()
    document.findings[:] = [each for each in document.findings if not others & {*each[0][:1]}]
    document.data = {n: section for n, section in document.data.items() if n not in others}
    for section, key in _SECRETS:
        _read_secret(document, section, key)
    settings = None
    try:
        settings = model.model_validate(document.data)
    except ValidationError as error:
        document.findings.extend(findings_of(error, model))
    if document.findings or settings is None:
        raise _refused(document, source)
    return settings


def located(error: ConfigurationError, path: str | os.PathLike[str]) -> ConfigurationError:
    """The error with the line of each problem of this file, as for a target that does not fit.

    Such problems are found when the file is read already, and are looked up in it again.
    """
    source = os.fspath(path)
    try:
        document = _sections(_text(source), None, source)
    except (ValueError, ConfigurationError):
        return error
    places = {path_of(place): place for place in document.marks if place}
    places |= {".".join(map(str, place)): place for place in document.marks if place}
    problems = [
        problem if problem.line else _at(problem, document, _nearest(problem.path, places))
        for problem in error.problems
    ]
    found = any(problem.line for problem in problems)
    return ConfigurationError(*problems, source=error.source or (source if found else ""))


def _at(problem: Problem, document: Document, place: Location) -> Problem:
    """The problem with the line and the file of a place; unchanged if there is none."""
    if not place:
        return problem
    return replace(problem, line=document.mark(place)[0], file=document.file(place))


def _nearest(path: str, places: Mapping[str, Location]) -> Location:
    """The place of a path, or of the nearest part of it that is in the file."""
    while path and path not in places:
        path = _LAST_PART.sub("", path) if _LAST_PART.search(path) else ""
    return places.get(path, ())


def masked(settings: Settings) -> dict[str, Any]:
    """The effective configuration as plain data, without secrets and without unset keys."""
    return settings.model_dump(mode="json", by_alias=True, exclude_none=True)


def _handler_types(
    document: Document, handler_models: HandlerModels
) -> list[type[AnyHandlerSettings]]:
    """The types of handlers that the file may use. Notes those that it uses and that are broken."""
    handlers = document.data.get("handlers")
    sections = handlers.items() if isinstance(handlers, dict) else ()
    used = {n: h for n, h in sections if isinstance(h, dict) and isinstance(h.get("type"), str)}
    found = handler_models({str(handler["type"]) for handler in used.values()})
    for name, handler in used.items():
        if isinstance(reason := found.get(handler["type"]), str):
            document.findings.append((("handlers", name, "type"), reason))
            handler["type"] = Unresolved()
    return [model for model in found.values() if not isinstance(model, str)]


def _file(source: str) -> str:
    try:
        return _text(source)
    except ValueError as error:
        raise ConfigurationError(Problem("", str(error)), source=source) from None


def _sections(text: str, environ: Mapping[str, str] | None, source: str) -> Document:
    """The document of a text and of the files that it includes.

    Its data is a mapping; its findings are those of reading alone.
    """
    document = _mapping(text, environ, source)
    include(document, source, lambda file: _mapping(_text(file), environ, file))
    return document


def _mapping(text: str, environ: Mapping[str, str] | None, source: str) -> Document:
    """The document of a text alone, whose data is a mapping."""
    document = read(text, os.environ if environ is None else environ, source)
    if not isinstance(document.data, dict):
        if not document.findings:
            message = "must be a mapping of sections (mongodb, scopes, …)"
            document.findings.append(((), message))
        raise _refused(document, source)
    return document


def _refused(document: Document, source: str) -> ConfigurationError:
    """An error with every problem once, in the order of the file."""
    files = ["", *dict.fromkeys(document.files.values())]
    ordered = sorted(
        document.findings,
        key=lambda found: (files.index(document.file(found[0])), document.mark(found[0])),
    )
    problems = [
        Problem(path_of(place), message, document.mark(place)[0], document.file(place))
        for place, message in ordered
    ]
    return ConfigurationError(*dict.fromkeys(problems), source=source)


def _text(path: str) -> str:
    """The text of a file. Raises ``ValueError`` if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise ValueError("no such file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"cannot be read: {reason}") from None
    if len(data) > LARGEST:
        raise ValueError(f"is larger than {LARGEST} bytes: is it the right file?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 (byte {error.start}); save it as UTF-8") from None


def _read_secret(document: Document, name: str, key: str) -> None:
    """Reads the value of ``key`` from the file that ``key_file`` names, if the section has that."""
    section = document.data.get(name)
    file = section.get(f"{key}_file") if isinstance(section, dict) else None
    if not isinstance(file, str) or isinstance(file, Unresolved) or empty_is_none(file) is None:
        return
    location = (name, f"{key}_file")
    if empty_is_none(section.get(key)) is not None:
        document.findings.append((location, f"give either {key} or {key}_file"))
        return
    text = ""
    try:
        text = _text(file).strip()
        if not text:
            raise ValueError("is empty")
    except ValueError as error:
        document.findings.append((location, f"the file {file!r} {error}"))
    section[key] = text or Unresolved()
