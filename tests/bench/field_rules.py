"""What the rules of ``fields`` cost a document: CPU microseconds, each rule in turns.

``make bench WHAT=field_rules``. The documents have 13 fields and about 650 B. A
plain client is beside it, which decodes a document with PyMongo, hashes a value and encodes it
again. The least of the runs counts: other work on the machine makes a run dearer, never cheaper.
"""

import argparse
import hmac
import random
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import bson

from tailrace.event.field_mapping import FieldMapping
from tailrace.event.field_protection import FieldProtection
from tailrace.event.flattening import Flattening
from tailrace.event.value_change import hashed, masked

DOCUMENTS = 2000
KEY = bytes(range(32))
MOST_US = 4.0
"""The goal for the hash of one field."""

Rule = Callable[[bytes], bytes]


def documents(count: int = DOCUMENTS) -> list[bytes]:
    """Orders with other values each."""
    made = random.Random(1)
    return [
        bson.encode(
            {
                "_id": bson.ObjectId(made.randbytes(12)),
                "email": f"customer.{made.randrange(10**6)}@example.com",
                "status": made.choice(["new", "paid", "sent"]),
                "total": made.random() * 1000,
                "account": f"{made.randrange(10**9):09}",
                "count": made.randrange(100),
                "created": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(made.random() * 300),
                "paid": made.random() < 0.5,
                "address": {"street": "1 Main Street", "city": "Springfield", "zip": "12345"},
                "tags": ["a", "b", "c"],
                "lines": [{"sku": f"A{line}", "quantity": line, "price": 9.5} for line in range(3)],
                "note": "x" * 200,
                "phone": f"+1 555 {made.randrange(10**7):07}",
            }
        )
        for _ in range(count)
    ]


def plain_client(raw: bytes) -> bytes:
    document = bson.decode(raw)
    document["email"] = hmac.digest(KEY, document["email"].encode(), "sha256").hex()
    return bson.encode(document)


def rules() -> Mapping[str, Rule]:
    hashes = {
        "`hash` of `_id`, an ObjectId": "_id",
        "`hash` of the second field, a text": "email",
        "`hash` of the fifth field, a text": "account",
        "`hash` of the last field, a text": "phone",
        "`hash` of a field of each document in an array": "lines.sku",
        "`hash` of a field that is not there": "ssn",
    }
    return {
        "plain client: decode, hash the second field, encode": plain_client,
        **{name: FieldProtection({path: hashed(KEY)}).of_document for name, path in hashes.items()},
        "`mask` of the second field": FieldProtection({"email": masked("***")}).of_document,
        "`take` of three fields": FieldMapping(["email", "total", "tags"], [], {}).of_document,
        "`leave_out` of a field": FieldMapping([], ["note"], {}).of_document,
        "`rename` of a field": FieldMapping([], [], {"email": "mail"}).of_document,
        "`flatten`": FieldMapping([], [], {}, Flattening()).of_document,
        "`set` of a field": FieldMapping([], [], {}, constants={"region": "eu"}).of_document,
    }


def cpu_us(rule: Rule, given: Sequence[bytes]) -> float:
    began = time.process_time()
    for raw in given:
        rule(raw)
    return (time.process_time() - began) / len(given) * 1e6


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="five runs of each")
    given, measured = documents(), rules()
    least = dict.fromkeys(measured, float("inf"))
    for _ in range(5 if options.parse_args().quick else 100):
        for name, rule in measured.items():
            least[name] = min(least[name], cpu_us(rule, given))
    print(f"| {sum(map(len, given)) / len(given):.0f} B, goal: {MOST_US} µs for a hash | µs |")
    print("|---|---|")
    for name, us in least.items():
        print(f"| {name} | {us:.1f} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
