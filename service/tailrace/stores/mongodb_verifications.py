"""Verifications in a collection of a replica set: a document for the last one of each handler.

Its ``_id`` is ``<scope>:<handler>`` (no scope name has a colon).
"""

from collections.abc import Sequence

from tailrace.model.verification import Verification
from tailrace.stores.mongodb_collection import RecordCollection
from tailrace.stores.records import read_record, readable, verification_fenced


class MongoVerifications:
    """A :class:`tailrace.verify.ports.VerificationStore`."""

    def __init__(self, records: RecordCollection) -> None:
        self._records = records

    async def load(self, scope: str) -> Sequence[Verification]:
        where = self._of(scope)
        query = {"_id": {"$gt": f"{scope}:", "$lt": f"{scope};"}}
        records = await self._records.find_all(query, where, level="majority")
        of = {"scope": scope, "where": where}
        return await readable(lambda record: read_record(Verification, record, **of), records)

    async def save(self, verification: Verification) -> None:
        where, scope = self._of(verification.scope), verification.scope
        key = f"{scope}:{verification.handler}"
        update = {
            "q": {"_id": key, "epoch": {"$lte": verification.epoch}},
            "u": {"_id": key, **verification.to_document()},
            "upsert": True,
        }
        if await self._records.update(update, where) is None:
            raise verification_fenced(verification, where=where)

    def _of(self, scope: str) -> str:
        return f"{self._records}, scope {scope!r}"
