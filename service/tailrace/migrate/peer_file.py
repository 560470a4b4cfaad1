"""Reads a peer's file: JSON of Kafka Connect, Java properties, or YAML, as of Strimzi."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tailrace.migrate.options import refuse

_MOST_BYTES = 16 * 2**20
_LINE = re.compile(r"\r\n|\r|\n")
_CONTINUES = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")
_STRIMZI = re.compile(r"^kind:\s*[\"']?KafkaConnector\b", re.MULTILINE)
_PROPERTY = re.compile(r"[ \t\f]*((?:\\.|[^\\\s=:])+)[ \t\f]*[=:]?[ \t\f]*(.*)")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_PROVIDER = re.compile(r"\$\{([^${}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def read_bytes(file: str) -> bytes:
    """The content of a file. Raises :class:`ConfigurationError` if it cannot be read."""
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        refuse(file, f"cannot be read: {error.strerror or error}")
    if len(content) > _MOST_BYTES:
        refuse(file, f"has {len(content)} bytes, too many for such a file")
    return content


def read_text(file: str) -> str:
    """The same, as UTF-8."""
    try:
        return read_bytes(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        refuse(file, f"is no text in UTF-8: {error.reason} at byte {error.start}")


def connector(file: str) -> dict[str, str]:
    """The options of a connector: JSON as Kafka Connect's REST API takes and gives it, or
    properties. ``name`` is among them if the file has it, and variables are as :func:`ours`."""
    text = read_text(file)
    if _STRIMZI.search(text):
        return _of_connect(_of_strimzi(yaml(file), file), file)
    if not text.lstrip().startswith(("{", "[")):
        pairs = list(_properties(text, file))
        of_server = any(key.startswith("debezium.") for key, _ in pairs)
        return {key: ours(value, provided=not of_server) for key, value in pairs}
    document = _json(text, file)
    if isinstance(document, list) and len(document) == 1:
        [document] = document
    if isinstance(document, dict) and "config" not in document:
        several = [each["info"] for each in document.values() if _has(each, "info")]
        if len(several) > 1:  # of GET /connectors?expand=info
            refuse(file, f"has the connectors {', '.join(document)}: give a file with one of them")
        [document] = several or [document]
    if not isinstance(document, dict):
        refuse(file, "has no configuration of one connector")
    return _of_connect(document, file)


def _has(value: Any, key: str) -> bool:
    return isinstance(value, dict) and key in value


def _of_strimzi(document: Any, file: str) -> dict[str, Any]:
    """The resource ``KafkaConnector`` of an operator, as Kafka Connect gets it."""
    spec, metadata = (
        document.get(key) if isinstance(document, dict) else None for key in ("spec", "metadata")
    )
    if not isinstance(spec, dict) or not isinstance(spec.get("config"), dict):
        refuse(file, "spec.config: there are no options of a connector")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return {"name": name, "config": {"connector.class": spec.get("class"), **spec["config"]}}


def _of_connect(document: dict[str, Any], file: str) -> dict[str, str]:
    """The options of a connector, from the body of a request, or from the options alone."""
    config = document.get("config", document)
    if not isinstance(config, dict):
        refuse(file, "config: is no mapping of options")
    if name := document.get("name"):
        config = {"name": name, **config}
    for key, value in config.items():
        if isinstance(value, dict | list):
            refuse(file, f"{key}: options of a connector are texts, not {type(value).__name__}")
    return {
        key: json.dumps(value) if isinstance(value, bool) else ours(str(value), provided=True)
        for key, value in config.items()
        if value is not None
    }


def yaml(file: str) -> Any:
    """The document of a YAML file."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(read_text(file))
    except (YAMLError, ValueError, RecursionError) as error:
        refuse(file, f"is no YAML: {' '.join(str(error).split())}")


def ours(value: str, *, provided: bool = False) -> str:
    """A value with the peer's variables in Tailrace's form.

    What Kafka Connect's providers of secrets would fill in (``${file:/run/secrets:password}``)
    becomes a variable named by its key. ``provided``: a colon never stands before a default.
    """

    def variable(match: re.Match[str]) -> str:
        name, separator, default = match[1].partition(":")
        if _NAME.match(match[1]):
            return f"${{{match[1]}}}"
        is_key = provided or name in ("env", "file", "directory", "secrets") or ":" in default
        if separator and not is_key and _NAME.match(name):
            return f"${{{name}:-{default}}}"
        key = re.sub(r"\W", "_", match[1].rpartition(":")[2]).upper()
        if name.endswith("env"):  # Strimzi's is strimzienv
            key = match[1].rpartition(":")[2]
        return f"${{{key}}}" if separator and _NAME.match(key) else f"$${match[0][1:]}"

    return _PROVIDER.sub(variable, value)


def json_of(text: str) -> Any:
    """The value of a JSON text. Raises :class:`ValueError`, also if it is nested too deep."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def _json(text: str, file: str) -> Any:
    try:
        return json_of(text)
    except ValueError as error:
        refuse(file, f"is no JSON: {error}")


def _properties(text: str, file: str) -> Iterator[tuple[str, str]]:
    """The pairs of a file of Java properties (java.util.Properties.load)."""
    for line in _logical_lines(text):
        match = _PROPERTY.match(line)
        if match is None or (match[2] == "" and "=" not in line and ":" not in line):
            shown = line.strip()[:60]
            refuse(file, f"is neither JSON nor properties: no option in the line {shown!r}")
        yield _unescaped(match[1]), _unescaped(match[2])


def _logical_lines(text: str) -> Iterator[str]:
    """Lines with those that continue them. Comments, and empty lines, are continued by none."""
    begun = ""
    for line in _LINE.split(text):
        rest = line.lstrip(" \t\f")
        if not begun and (not rest or rest[0] in "#!"):
            continue
        begun += rest
        if _CONTINUES.search(begun):
            begun = begun[:-1]
        elif begun:
            yield begun
            begun = ""
    if begun:
        yield begun


def _unescaped(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else _CONTROL.get(match[2], match[2])

    return _ESCAPE.sub(character, text)
