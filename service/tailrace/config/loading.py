"""Loads and checks a configuration file. All its problems are reported at once."""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from tailrace.config.checks import check
from tailrace.config.document import Document, Location
from tailrace.config.handlers import AnyHandlerSettings, HandlerModels
from tailrace.config.interpolation import Unresolved
from tailrace.config.messages import findings_of, path_of
from tailrace.config.sections import (
    read_file,
    read_secrets,
    read_sections,
    read_text,
    refused,
)
from tailrace.config.settings import Settings, model_of
from tailrace.errors import ConfigurationError, Problem
from tailrace.masking import keep_secret, secrets_of

_LAST_PART = re.compile(r"(\.[^.\[]+|\[[^\[]*\])\Z")


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
    settings = loads(read_file(source), handler_models, environ, source=source)
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
    document = read_sections(text, environ, source)
    findings = document.findings
    read_secrets(document)
    model = model_of(_handler_types(document, handler_models))
    settings = None
    try:
        settings = model.model_validate(document.data)
    except ValidationError as error:
        findings.extend(findings_of(error, model))
    findings.extend(check(document.data))
    if findings or settings is None:
        raise refused(document, source)
    return settings


def located(error: ConfigurationError, path: str | os.PathLike[str]) -> ConfigurationError:
    """The error with the line of each problem of this file, as for a target that does not fit.

    Such problems are found when the file is read already, and are looked up in it again.
    """
    source = os.fspath(path)
    try:
        document = read_sections(read_text(source), None, source)
    except (ValueError, ConfigurationError):
        return error
    locations = {path_of(location): location for location in document.marks if location}
    locations |= {".".join(map(str, location)): location for location in document.marks if location}
    problems = [
        problem if problem.line else _at(problem, document, _nearest(problem.path, locations))
        for problem in error.problems
    ]
    in_file = any(problem.line for problem in problems)
    return ConfigurationError(*problems, source=error.source or (source if in_file else ""))


def _at(problem: Problem, document: Document, location: Location) -> Problem:
    """The problem with the line and the file of a location; unchanged if there is none."""
    if not location:
        return problem
    return replace(problem, line=document.mark(location)[0], file=document.file(location))


def _nearest(path: str, locations: Mapping[str, Location]) -> Location:
    """The location of a path, or of the nearest part of it that is in the file."""
    while path and path not in locations:
        path = _LAST_PART.sub("", path) if _LAST_PART.search(path) else ""
    return locations.get(path, ())


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
    models = handler_models({str(handler["type"]) for handler in used.values()})
    for name, handler in used.items():
        if isinstance(reason := models.get(handler["type"]), str):
            document.findings.append((("handlers", name, "type"), reason))
            handler["type"] = Unresolved()
    return [model for model in models.values() if not isinstance(model, str)]
