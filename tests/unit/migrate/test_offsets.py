"""Resume tokens in the offsets of peers: files of their real jars, and what looks like them."""

import base64
import json
from pathlib import Path

import bson
import pytest

from tailrace.errors import ConfigurationError
from tailrace.migrate.offsets import token_of

FILES = Path(__file__).parents[2] / "migrate" / "files"
DATA = "826B0976B0000000022B022C0100296E5A1004B8575438F84246579F11435569777D53461E5F6964002B140004"
LAST = "826B0976BB000000022B022C0100296E5A1004B8575438F84246579F11435569777D53461E5F6964002B2A0004"
BASE64 = base64.b64encode(bson.encode({"_data": DATA})).decode()
OFFSET = {"sec": 1795782320, "ord": 2, "resume_token": BASE64}
SHOP = {"server_id": "dbserver1"}
REAL = (FILES / "debezium.offsets").read_bytes()
_FIRST = REAL.index(b"xp", REAL.index(b"[B")) + 2
_MANY = REAL.index(b"w\x08") + 6
_NEGATIVE = b"\xff\xff\xff\xe9" + REAL[_FIRST + 4 :]
BACKWARDS = REAL[:_MANY] + b"\x7f\xff\xff\xff" + REAL[_MANY + 4 : _FIRST] + _NEGATIVE
"""A map of two thousand million, whose first array ends where it begins."""


def of_topic(*pairs: tuple[object, object]) -> str:
    """Messages of ``connect-offsets`` as kcat and others write them."""
    return "\n".join(json.dumps({"key": key, "value": value}) for key, value in pairs)


def read(tmp_path: Path, peer: str, content: str | bytes, name: str = "shop") -> str:
    file = tmp_path / "offsets"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(token_of(peer, str(file), name, SHOP if peer == "debezium" else {})["_data"])


@pytest.mark.parametrize("name", ["shop", ""])
def test_files_of_the_real_jars(name: str) -> None:
    debezium, mongo_kafka = FILES / "debezium.offsets", FILES / "mongo-kafka.offsets"
    assert token_of("debezium", str(debezium), name, SHOP) == {"_data": DATA}
    assert token_of("mongo-kafka", str(mongo_kafka), name, {}) == {"_data": LAST}


@pytest.mark.parametrize(
    "content",
    [
        of_topic((["shop", SHOP], OFFSET)),
        of_topic((json.dumps(["shop", SHOP]), json.dumps(OFFSET))),
        of_topic((["shop", SHOP], {"resume_token": "x"}), (["shop", SHOP], OFFSET)),
        of_topic((["other", SHOP], {}), (["shop", {"rs": "rs0", **SHOP}], OFFSET)),
        f"{json.dumps(['shop', SHOP])}\t{json.dumps(OFFSET)}\n",
        json.dumps({"offsets": [{"partition": SHOP, "offset": OFFSET}]}),
        of_topic((["shop", SHOP], {"resume_token": DATA})),
        of_topic((["shop", SHOP], {"resume_token": json.dumps({"_data": DATA})})),
    ],
)
def test_messages_of_the_topic_and_of_the_rest_api(tmp_path: Path, content: str) -> None:
    assert read(tmp_path, "debezium", content) == DATA


@pytest.mark.parametrize(
    ("peer", "content", "message"),
    [
        ("debezium", REAL[:-1], "cut off"),
        ("debezium", REAL[:100], "cut off"),
        ("debezium", REAL[:60], "no map of bytes"),
        ("debezium", REAL.replace(b"HashMap", b"HashSet"), "no map of bytes"),
        ("debezium", REAL.replace(b"[B", b"[I"), "no map of bytes"),
        ("debezium", REAL + b"x", "cut off or damaged"),
        ("debezium", BACKWARDS, "no map of bytes"),
        ("debezium", b"SQLite format 3\0", "is no file of offsets"),
        ("debezium", "", "has no offset of the connector 'shop' (server_id dbserver1)"),
        ("debezium", of_topic((["other", SHOP], OFFSET)), '["other"'),
        ("debezium", of_topic((["shop", {"server": "x"}], {"lsn": 7})), "of another connector"),
        ("debezium", of_topic((["shop", SHOP], None)), "was deleted"),
        ("debezium", of_topic((["shop", SHOP], {"initsync": True, "sec": 1})), "has not ended"),
        ("debezium", of_topic((["shop", SHOP], {"sec": 1, "ord": 2, "h": 3})), "no resume token"),
        (
            "debezium",
            of_topic((["shop", SHOP], {"resume_token": "%%%"})),
            "no resume token in b",
        ),
        ("debezium", of_topic((["shop", SHOP], {"resume_token": "AAAA"})), "no resume token in b"),
        ("debezium", of_topic((["shop", SHOP], [1])), "a position is a mapping"),
        (
            "debezium",
            of_topic((["shop", {"rs": "a", **SHOP}], OFFSET), (["shop", SHOP], OFFSET)),
            "several offsets",
        ),
        ("mongo-kafka", REAL, "no _id"),
        (
            "mongo-kafka",
            of_topic((["shop", {}], {"_id": json.dumps({"_data": DATA}), "copy": "true"})),
            "copy has not ended",
        ),
        ("mongo-kafka", of_topic((["shop", {}], {"_id": "{}"})), "no text _data"),
        (
            "mongo-kafka",
            of_topic((["shop", {}], {"_id": '{"_data": {"$numberDecimal": "x"}}'})),
            "no resume token in Extended JSON",
        ),
        ("mongo-kafka", of_topic((["shop", {}], {"_id": "{"})), "no resume token in Extended JSON"),
    ],
)
def test_offsets_that_cannot_be_read_are_one_error(
    tmp_path: Path, peer: str, content: str | bytes, message: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read(tmp_path, peer, content)
    assert message in str(raised.value)
    assert str(tmp_path / "offsets") in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        token_of("debezium", str(tmp_path / "none"), "shop", {})
