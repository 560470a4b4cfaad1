"""Reads a configuration file as a document, with the files that it includes; or some sections."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from tailrace.config.document import Document, read
from tailrace.config.fields import Section, empty_is_none
from tailrace.config.includes import include
from tailrace.config.interpolation import Unresolved
from tailrace.config.messages import findings_of, path_of
from tailrace.errors import ConfigurationError, Problem

S = TypeVar("S", bound=Section)

SECTIONS = frozenset(
    (
        *("mongodb", "store", "checkpoint", "delivery", "catch_up", "supervisor", "shutdown"),
        *("replicas", "http", "logging", "telemetry", "pipeline"),
        *("scopes", "handlers", "routes", "include"),
    )
)
"""The sections of :class:`tailrace.config.settings.Settings`, which takes long to import."""

_SECRETS = (("mongodb", "uri"), ("http", "token"))
"""Keys that may be read from a file, which the same key with ``_file`` names."""

LARGEST = 2**20
"""The largest file that is read, in bytes: what a Kubernetes ConfigMap can hold. A larger file (a
log, a device) could use up the memory of a small container."""


def load_only(
    model: type[S], path: str | os.PathLike[str], environ: Mapping[str, str] | None = None
) -> S:
    """The sections of a file that ``model`` has.

    Other sections are not checked, and their variables need not be set. Raises
    :class:`ConfigurationError` with every other problem.
    """
    source = os.fspath(path)
    return only(model, read_sections(read_file(source), environ, source), source)


def only(model: type[S], document: Document, source: str) -> S:
    """The same, of a document that was read."""
    others = SECTIONS - model.by_key().keys()
    document.findings[:] = [each for each in document.findings if not others & {*each[0][:1]}]
    document.data = {n: section for n, section in document.data.items() if n not in others}
    read_secrets(document)
    settings = None
    try:
        settings = model.model_validate(document.data)
    except ValidationError as error:
        document.findings.extend(findings_of(error, model))
    if document.findings or settings is None:
        raise refused(document, source)
    return settings


def read_file(source: str) -> str:
    """The text of a file. Raises :class:`ConfigurationError`."""
    try:
        return read_text(source)
    except ValueError as error:
        raise ConfigurationError(Problem("", str(error)), source=source) from None


def read_sections(text: str, environ: Mapping[str, str] | None, source: str) -> Document:
    """The document of a text and of the files that it includes.

    Its data is a mapping; its findings are those of reading alone.
    """
    document = _mapping(text, environ, source)
    include(document, source, lambda file: _mapping(read_text(file), environ, file))
    return document


def _mapping(text: str, environ: Mapping[str, str] | None, source: str) -> Document:
    """The document of a text alone, whose data is a mapping."""
    document = read(text, os.environ if environ is None else environ, source)
    if not isinstance(document.data, dict):
        if not document.findings:
            message = "must be a mapping of sections (mongodb, scopes, …)"
            document.findings.append(((), message))
        raise refused(document, source)
    return document


def refused(document: Document, source: str) -> ConfigurationError:
    """An error with every problem once, in the order of the file."""
    files = ["", *dict.fromkeys(document.files.values())]
    ordered = sorted(
        document.findings,
        key=lambda finding: (files.index(document.file(finding[0])), document.mark(finding[0])),
    )
    problems = [
        Problem(path_of(location), message, document.mark(location)[0], document.file(location))
        for location, message in ordered
    ]
    return ConfigurationError(*dict.fromkeys(problems), source=source)


def read_text(path: str) -> str:
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


def read_secrets(document: Document) -> None:
    """Reads the secrets that are in files of their own."""
    for section, key in _SECRETS:
        _read_secret(document, section, key)


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
        text = read_text(file).strip()
        if not text:
            raise ValueError("is empty")
    except ValueError as error:
        document.findings.append((location, f"the file {file!r} {error}"))
    section[key] = text or Unresolved()
