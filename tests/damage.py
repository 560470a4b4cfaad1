"""A segment with one wrong byte: every such byte is an error, or changes no value."""

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bson import ObjectId
from bson.timestamp import Timestamp

from tailrace.destinations.parquet.landing import Landing
from tailrace.engine import RunIdentity
from tailrace.lake.segment import Documents
from tailrace.lake.writable_lake import WritableLake
from tests.lake import segments
from tests.scripted.wire import in_order

OWNER = RunIdentity("orders", "rs0/6b0357eb426aa01b41bf05a9", "f1", 1)


def landed(lake: Path, events: int = 300, documents: Documents = Documents.BSON) -> Path:
    """Writes a segment of the scope ``orders`` as the daemon does, and returns its path."""
    landing = Landing(WritableLake.open(str(lake)), "orders", documents)
    landing.begin(OWNER)
    landing.append(list(_events(events)))
    landing.commit()
    return segments(lake, "orders")[1]


def damages(data: bytes, count: int, seed: int = 1) -> Iterator[tuple[int, bytes]]:
    """Yields the index of a wrong byte, and the file's content with it.

    A third of the wrong bytes are in the metadata at the end, which readers read first.
    """
    chance = random.Random(seed)
    begin = metadata_begin(data)
    for at in range(count):
        place = chance.randrange(begin, len(data)) if at % 3 == 0 else chance.randrange(begin)
        wrong = data[place] ^ chance.randrange(1, 256)
        yield place, b"%b%c%b" % (data[:place], wrong, data[place + 1 :])


def metadata_begin(data: bytes) -> int:
    """The index at which a Parquet file's metadata begins, after the pages."""
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


def _events(count: int) -> Iterator[bytes]:
    chance = random.Random(count)
    operations: Sequence[str] = ("insert", "update", "replace", "delete")
    for number in range(count):
        identity = ObjectId(number.to_bytes(12, "big"))
        operation = chance.choice(operations)
        event: dict[str, Any] = {
            "_id": {"_data": f"8265A0B0C0{number:08X}2B0229296E04"},
            "operationType": operation,
            "clusterTime": Timestamp(1_700_000_000 + number // 10, number),
            "wallTime": datetime(2026, 1, 1, tzinfo=UTC),
        }
        if operation != "delete":
            text = f"{chance.getrandbits(200):x}"
            event["fullDocument"] = {"_id": identity, "n": number, "text": text}
        event["ns"] = {"db": "shop", "coll": "orders"}
        event["documentKey"] = {"_id": identity}
        if operation == "update":
            event["updateDescription"] = {"updatedFields": {"n": number}, "removedFields": []}
        yield in_order(event)
