"""The resume token in a peer's offsets.

Kafka Connect keeps pairs of JSON texts: ``["connector", {partition}]`` and the position. They are
read from the file of ``FileOffsetBackingStore`` (a ``java.util.HashMap<byte[], byte[]>`` in Java's
serialization: a dict cannot have such keys, and javaobj-py3 fails there), from lines of the topic
``connect-offsets``, and from the REST API (``GET /connectors/NAME/offsets``). Redpanda Connect's
checkpoint cache has a token as Extended JSON.
"""

import base64
import binascii
import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import bson
from bson import json_util
from bson.errors import BSONError

from tailrace.migrate.options import refuse
from tailrace.migrate.peer_file import json_of, read_bytes
from tailrace.model.token import NOT_A_DOCUMENT

# Java Object Serialization Specification, 6.4: the stream's head, and the classes of a HashMap of
# byte arrays, whose fields (load factor, threshold, capacity) mean nothing here.
_HASH_MAP = (
    b"\xac\xed\x00\x05sr\x00\x11java.util.HashMap\x05\x07\xda\xc1\xc3\x16`\xd1\x03\x00\x02"
    b"F\x00\nloadFactorI\x00\tthresholdxp"
)
_FIRST_ARRAY = b"ur\x00\x02[B\xac\xf3\x17\xf8\x06\x08T\xe0\x02\x00\x00xp"
_NEXT_ARRAY = b"uq\x00~\x00\x02"
_NULL, _END = b"p", b"x"

Pair = tuple[Any, Any]


def token_of(peer: str, file: str, name: str, key: Mapping[str, str]) -> Mapping[str, Any]:
    """The resume token of a connector in a file of offsets: ``{"_data": …}``.

    ``name`` and ``key``: what the connector is called there; empty if its configuration does not
    say so. Raises :class:`ConfigurationError`.
    """
    content = read_bytes(file)
    if peer == "redpanda":
        return _document(file, content.decode("utf-8", "replace"))
    pairs = list(_pairs(file, content))
    found = {}
    for owner, offset in pairs:  # a topic has older positions before newer ones
        found[json.dumps(owner, sort_keys=True)] = (owner, offset)
    chosen = [pair for pair in found.values() if _is_of(pair[0], name, key)]
    if not chosen:
        names = ", ".join(found) or "none"
        refuse(file, f"has no offset of the connector {name!r}{_text(key)}; it has: {names}")
    if len(chosen) > 1:
        names = ", ".join(json.dumps(owner) for owner, _ in chosen)
        refuse(file, f"has several offsets of the connector {name!r}: {names}. Leave one")
    [(_, offset)] = chosen
    if offset is None:
        refuse(file, f"the offset of the connector {name!r} was deleted")
    return (_of_debezium if peer == "debezium" else _of_mongo_kafka)(file, offset)


def _of_debezium(file: str, offset: Any) -> Mapping[str, Any]:
    if not isinstance(offset, dict):
        refuse(file, "is no offset of Debezium: a position is a mapping")
    token = offset.get("resume_token")
    if offset.get("initsync") or offset.get("snapshot"):
        refuse(
            file,
            "Debezium's snapshot has not ended, so there is no position after it: let it end, or "
            "leave --offsets out, and Tailrace takes a snapshot of its own",
        )
    if not isinstance(token, str) or not token:
        known = ", ".join(map(str, offset)) or "nothing"
        what = "no resume token, so it is of another connector or of a Debezium before 1.8"
        refuse(file, f"the offset has {what} (it has: {known})")
    if token.startswith("82") or token.lstrip().startswith("{"):  # Debezium 1.8 to 2.1
        return _document(file, token if "{" in token else json.dumps({"_data": token}))
    try:
        return _checked(file, bson.decode(base64.b64decode(token, validate=True)))
    except (binascii.Error, ValueError, BSONError):
        refuse(file, "resume_token is no resume token in base64, as Debezium writes it")


def _of_mongo_kafka(file: str, offset: Any) -> Mapping[str, Any]:
    token = offset.get("_id") if isinstance(offset, dict) else None
    if not token:
        known = ", ".join(map(str, offset)) if isinstance(offset, dict) else type(offset).__name__
        refuse(file, f"is no offset of MongoDB's connector: no _id (it has: {known})")
    if str(offset.get("copy", "")).lower() == "true":
        refuse(
            file,
            "the connector's copy has not ended, so there is no position after it: let it end, or "
            "leave --offsets out, and Tailrace takes a snapshot of its own",
        )
    return _document(file, token if isinstance(token, str) else json.dumps(token))


def _document(file: str, text: str) -> Mapping[str, Any]:
    """A token in Extended JSON."""
    try:
        document = json_util.loads(text)
    except (ValueError, *NOT_A_DOCUMENT):
        refuse(file, f"is no resume token in Extended JSON: {text.strip()[:60]!r}")
    return _checked(file, document)


def _checked(file: str, document: Any) -> Mapping[str, Any]:
    if not isinstance(document, Mapping) or not isinstance(document.get("_data"), str):
        refuse(file, "its resume token has no text _data, so it is of no server that is supported")
    return {"_data": document["_data"]}


def _is_of(owner: Any, name: str, key: Mapping[str, str]) -> bool:
    """Whether an offset belongs to a connector."""
    if not isinstance(owner, list) or len(owner) != 2 or not isinstance(owner[1], dict):
        return False
    return (not name or owner[0] in (name, None)) and all(
        owner[1].get(part, value) == value for part, value in key.items()
    )


def _text(key: Mapping[str, str]) -> str:
    return f" ({', '.join(f'{name} {value}' for name, value in key.items())})" if key else ""


def _pairs(file: str, content: bytes) -> Iterator[Pair]:
    """The names and positions of all offsets."""
    if content.startswith(b"\xac\xed"):
        yield from _of_java(file, content)
        return
    text = content.decode("utf-8", "replace").strip()
    try:
        document = json_of(text)
    except ValueError:
        document = None
    if isinstance(document, dict) and isinstance(document.get("offsets"), list):
        for entry in document["offsets"]:
            if isinstance(entry, dict):
                yield [None, entry.get("partition")], entry.get("offset")
        return
    for line in filter(str.strip, text.splitlines()):
        yield _of_line(file, line)


def _of_line(file: str, line: str) -> Pair:
    """A message of the topic: an object with key and value, or both with a tab between them."""
    key, tab, value = line.partition("\t")
    try:
        if not tab:
            message = json_of(line)
            key = message["key"]
            value = message["value"] if "value" in message else message["payload"]
        return _plain(key), _plain(value)
    except (ValueError, TypeError, KeyError):
        refuse(
            file,
            "is no file of offsets: neither that of FileOffsetBackingStore, nor messages of the "
            f"topic connect-offsets as JSON lines with key and value: {line[:60]!r}",
        )


def _plain(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    return None if text.strip() in ("", "null") else json_of(text)


def _of_java(file: str, content: bytes) -> Iterator[Pair]:
    """The pairs of a serialized ``HashMap<byte[], byte[]>``."""
    other = "is a Java object, but no map of bytes as FileOffsetBackingStore writes it"
    if not content.startswith(_HASH_MAP):
        refuse(file, other)
    try:
        at = len(_HASH_MAP) + 8
        head, _, count = struct.unpack_from(">2sii", content, at)
        at += 10
        if head != b"w\x08":
            refuse(file, other)
        arrays = []
        for _ in range(2 * count):
            if content.startswith(_NULL, at):
                arrays.append(b"null")
                at += 1
                continue
            start = _NEXT_ARRAY if content.startswith(_NEXT_ARRAY, at) else _FIRST_ARRAY
            if not content.startswith(start, at):
                refuse(file, other)
            at += len(start)
            (size,) = struct.unpack_from(">I", content, at)  # a negative one is as damaged
            arrays.append(content[at + 4 : at + 4 + size])
            at += 4 + size
        if content[at:] != _END:
            refuse(file, "is cut off or damaged: it does not end where its map ends")
        texts = [array.decode() for array in arrays]
        for key, value in zip(texts[::2], texts[1::2], strict=True):
            yield json_of(key), json_of(value)
    except (struct.error, ValueError) as error:
        refuse(file, f"is cut off or damaged: {error}")
