"""The keys that differ by a verification, for the snapshot that repairs their rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from tailrace.model.snapshot import DocumentId
from tailrace.verify.ports import VerificationStore


async def keys_that_differ(
    store: VerificationStore, scope: str, verification: str
) -> Mapping[str, Sequence[DocumentId]] | None:
    """By UUID of their collection, those of which all are listed and that a document can have.

    See :data:`tailrace.engine.plan.row_source.FindKeys`.
    """
    records = await store.load(scope)
    record = next((one for one in records if one.id == verification), None)
    if record is None:
        return None
    keys: dict[str, dict[DocumentId, None]] = defaultdict(dict)
    unlisted = record.unlisted
    for difference in record.keys:
        if difference.id is not None and difference.collection not in unlisted:
            keys[record.collections[difference.collection].uuid][difference.id] = None
    return {uuid: list(ids) for uuid, ids in keys.items()}
