"""What a verification lists of the differences that it has found."""

from dataclasses import replace

from tailrace.model.verification import Kind, VerificationRequest
from tailrace.stores.memory import MemoryDeadLetters
from tailrace.verify.compare import Suspect
from tailrace.verify.findings import MOST_LISTED, MOST_LISTED_BYTES, Findings
from tests.contract.stores import NOW
from tests.contract.test_verification_store import FIRST
from tests.unit.verify.scripted import ORDERS, at, key

RECORD = replace(FIRST, request=VerificationRequest(values=True), began=NOW)


def suspect(number: int, name: str, value: str) -> Suspect:
    rows = {name: value}, {name: ""}
    return Suspect(key(number), Kind.DIFFERENT, (name,), *rows)


def test_of_a_long_value_the_beginning_is_told() -> None:
    findings = Findings(RECORD, MemoryDeadLetters())
    findings.differs(ORDERS, [suspect(1, "n", "x" * 15_000_000)], at(1))
    assert findings.record.keys[0].expected == ("x" * 1000,)


def test_differences_are_listed_up_to_a_number_and_a_size_and_counted_beyond() -> None:
    for name, most in (("n", MOST_LISTED), ("n" * 100_000, MOST_LISTED_BYTES // 100_000)):
        findings, of = Findings(RECORD, MemoryDeadLetters()), ORDERS
        for first in range(0, MOST_LISTED + 1000, 1000):
            found = [suspect(number, name, "x") for number in range(first, first + 1000)]
            of = findings.differs(of, found, at(1))
        assert of.counts.different == MOST_LISTED + 1000
        assert most - 10 < len(findings.record.keys) <= most


def test_so_are_keys_that_no_document_can_have() -> None:
    findings = Findings(RECORD, MemoryDeadLetters())
    of = findings.has_no_document(ORDERS, ["k" * MOST_LISTED_BYTES, "k"], at(1))
    assert (of.counts.too_many, len(findings.record.keys)) == (2, 1)
