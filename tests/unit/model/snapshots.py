"""The progress of a snapshot: a stored record, and a strategy for any progress."""

from typing import Any

from hypothesis import strategies as st

from tailrace.model.snapshot import (
    DocumentId,
    RangeProgress,
    RangeState,
    SnapshotMode,
    SnapshotProgress,
    SnapshotState,
)

RANGE = {
    "uuid": "0c" * 16,
    "database": "shop",
    "collection": "orders",
    "estimate": 7,
    "clustered": False,
    "scanned": 5,
    "documents": 3,
    "last": "DgAAABBfaWQABwAAAAA=",
    "state": "reading",
    "note": "",
}
SNAPSHOT = {
    "id": "5f3a",
    "mode": "initial",
    "state": "reading",
    "paused": False,
    "target": "database shop",
    "collections": ["orders"],
    "filter": "",
    "fingerprint": "",
    "note": "",
    "parallel": 1,
    "ranges": {"0c": RANGE},
    "time": [1_700_000_000, 3],
    "handled": "0123456789abba9876543210",
    "observed_generation": 2,
    "verification": "65a0",
}

_DIGESTS = ("0123456789ab", "ba9876543210")


def snapshots(
    text: st.SearchStrategy[str], counts: st.SearchStrategy[int], times: st.SearchStrategy[Any]
) -> st.SearchStrategy[SnapshotProgress]:
    """Any progress with these texts, counts and cluster times."""
    ids = st.none() | st.builds(DocumentId, st.binary(max_size=30))
    return st.builds(
        SnapshotProgress,
        id=text,
        mode=st.sampled_from(SnapshotMode),
        state=st.sampled_from(SnapshotState),
        paused=st.booleans(),
        target=text,
        parallel=st.integers(1, 9),
        collections=st.lists(text, max_size=2).map(tuple),
        filter=text,
        fingerprint=text,
        note=text,
        ranges=st.dictionaries(
            text,
            st.builds(
                RangeProgress,
                uuid=text,
                database=text,
                collection=text,
                estimate=counts,
                clustered=st.booleans(),
                scanned=counts,
                documents=counts,
                last=ids,
                until=ids,
                state=st.sampled_from(RangeState),
                note=text,
            ),
            max_size=2,
        ),
        began=st.none() | times,
        time=st.none() | times,
        handled=st.frozensets(st.sampled_from(_DIGESTS)),
    )
