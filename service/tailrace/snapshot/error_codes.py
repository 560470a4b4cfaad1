"""Error codes that do not end a snapshot (mongod, src/mongo/base/error_codes.yml)."""

READ_LATER = frozenset({239, 246})
"""SnapshotTooOld, SnapshotUnavailable: the time is too old, or the collection's metadata newer."""
READ_AGAIN = frozenset(
    {
        *(6, 7, 89, 9001),  # HostUnreachable, HostNotFound, NetworkTimeout, SocketException
        *(91, 11600, 11602, 10107, 13435, 13436, 189),  # shutdown and election
        *(43, 175, 237),  # CursorNotFound, QueryPlanKilled, CursorKilled
        *(50, 262),  # MaxTimeMSExpired, ExceededTimeLimit
        *(63, 150, 13388, 133, 134),  # StaleShardVersion and the like; no member suits yet
        *(112, 251),  # WriteConflict, NoSuchTransaction
        *(26, 361),  # NamespaceNotFound, CollectionUUIDMismatch: renamed or dropped just now
    }
)
