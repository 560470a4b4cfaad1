"""Frames on the socket: OP_MSG both ways, and the legacy OP_QUERY of some drivers' first hello.

Bytes in, bytes out: this module does not interpret commands. OP_COMPRESSED never occurs, because
the handshake offers no compressor.
"""

import asyncio
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import bson
from bson.codec_options import CodecOptions
from bson.errors import InvalidBSON

# MongoDB wire protocol: opcodes and flag bits.
OP_REPLY = 1
OP_QUERY = 2004
OP_MSG = 2013
MORE_TO_COME = 1 << 1
EXHAUST_ALLOWED = 1 << 16
AWAIT_CAPABLE = 1 << 3

_HEADER = struct.Struct("<iiii")
HEADER_BYTES = _HEADER.size
_FLAGS = struct.Struct("<IB")
_OP_REPLY_HEAD = struct.Struct("<iqii")
_INT32 = struct.Struct("<i")
_CODEC: CodecOptions[dict[str, Any]] = CodecOptions(document_class=dict, tz_aware=True)


@dataclass(frozen=True, slots=True)
class Message:
    """One request: its command document, and which replies the client expects."""

    request_id: int
    opcode: int
    flags: int
    document: dict[str, Any]
    database: str

    @property
    def wants_no_answer(self) -> bool:
        """True if the client set moreToCome: an unacknowledged write."""
        return self.opcode == OP_MSG and bool(self.flags & MORE_TO_COME)

    @property
    def exhaust_allowed(self) -> bool:
        """True if the client accepts several replies to this one request."""
        return self.opcode == OP_MSG and bool(self.flags & EXHAUST_ALLOWED)


@dataclass(frozen=True, slots=True)
class Answer:
    """One encoded reply document, and whether another reply follows without a request."""

    body: bytes
    more_to_come: bool = False


async def read_message(reader: asyncio.StreamReader) -> Message | None:
    """The next request; None if the client has disconnected."""
    try:
        header = await reader.readexactly(HEADER_BYTES)
        return parse(header, await reader.readexactly(body_bytes(header)))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def body_bytes(header: bytes) -> int:
    """How many bytes of a request follow its header."""
    length: int = _HEADER.unpack(header)[0]
    return length - HEADER_BYTES


def parse(header: bytes, body: bytes) -> Message | None:
    """Parses a request; None for garbage, on which a real server also disconnects."""
    _, request_id, _, opcode = _HEADER.unpack(header)
    try:
        if opcode == OP_MSG:
            return _read_op_msg(request_id, body)
        if opcode == OP_QUERY:
            return _read_op_query(request_id, body)
    except (InvalidBSON, struct.error, ValueError):
        return None
    return None


def frame(message: Message, reply_id: int, answer: Answer) -> bytes:
    """Wraps an answer for the request that it belongs to."""
    size = len(answer.body)
    return frame_head(message, reply_id, size, answer.more_to_come) + answer.body


def frame_head(message: Message, reply_id: int, size: int, more_to_come: bool = False) -> bytes:
    """The bytes before the ``size`` bytes of an answer."""
    if message.opcode == OP_QUERY:
        head = _OP_REPLY_HEAD.pack(AWAIT_CAPABLE, 0, 0, 1)
        opcode = OP_REPLY
    else:
        head = _FLAGS.pack(MORE_TO_COME if more_to_come else 0, 0)
        opcode = OP_MSG
    length = _HEADER.size + len(head) + size
    return _HEADER.pack(length, reply_id, message.request_id, opcode) + head


def array(documents: Iterable[bytes]) -> bytes:
    """A BSON array of encoded documents, built without decoding them."""
    return document(b"\x03%d\x00%b" % pair for pair in enumerate(documents))


def document(elements: Iterable[bytes]) -> bytes:
    """A BSON document of encoded elements."""
    content = b"".join(elements)
    return _INT32.pack(len(content) + 5) + content + b"\x00"


def elements(mapping: dict[str, Any]) -> bytes:
    """The encoded elements of a mapping, without the document's length and terminator."""
    return bson.encode(mapping)[4:-1]


def in_order(mapping: Mapping[str, Any]) -> bytes:
    """Encodes a mapping's elements in their order; ``bson.encode`` would put ``_id`` first.

    In change events mongod puts ``_id`` after the fields that identify the transaction.
    """
    return document(elements({name: value}) for name, value in mapping.items())


def subdocument(name: str, raw: bytes) -> bytes:
    """An element that contains an encoded document."""
    return b"\x03" + name.encode() + b"\x00" + raw


def subarray(name: str, raw: bytes) -> bytes:
    """An element that contains an encoded array."""
    return b"\x04" + name.encode() + b"\x00" + raw


def _read_op_msg(request_id: int, body: bytes) -> Message:
    """A section of kind 0, and at most one of kind 1: the documents of a write."""
    (flags,) = struct.unpack_from("<I", body)
    (size,) = _INT32.unpack_from(body, 5)
    command = bson.decode(body[5 : 5 + size], _CODEC)
    if sequence := body[5 + size + 1 + _INT32.size :]:
        name, _, documents = sequence.partition(b"\x00")
        command[name.decode()] = bson.decode_all(documents, _CODEC)
    return Message(request_id, OP_MSG, flags, command, str(command.get("$db", "admin")))


def _read_op_query(request_id: int, body: bytes) -> Message:
    (flags,) = struct.unpack_from("<I", body)
    end = body.index(b"\x00", 4)
    database = body[4:end].decode().partition(".")[0]
    start = end + 1 + 8  # numberToSkip and numberToReturn
    (size,) = _INT32.unpack_from(body, start)
    command = bson.decode(body[start : start + size], _CODEC)
    # Old drivers wrap the command to add a read preference.
    return Message(request_id, OP_QUERY, flags, command.get("$query", command), database)
