"""The settings of scopes and routes."""

from typing import Literal

from pydantic import Field

from tailrace.config.durations import MaxLag
from tailrace.config.fields import (
    CollectionName,
    Count,
    Flag,
    FollowedDatabase,
    Name,
    NamespacePattern,
    OneOrMore,
    Opaque,
    OpaqueMapping,
    Section,
    Stages,
    StartAt,
    Text,
)
from tailrace.config.snapshots import Snapshot, SnapshotSettings
from tailrace.config.telemetry import TraceSettings
from tailrace.config.verification import VerificationSettings

LOOKUP = "lookup"
"""The value of ``full_document`` with which Tailrace itself looks documents up."""

WHOLE_DOCUMENTS = (LOOKUP, "updateLookup", "whenAvailable", "required")
"""The values of ``full_document`` with which updates carry the document after the change."""


class ScopeSettings(Section):
    """One change stream: of a collection, a database (no collection) or the cluster (neither).

    Options that only the server understands are passed through unchecked, so that an option of a
    newer server needs no newer Tailrace.
    """

    name: Name
    """The name of the scope in logs and metrics, and the key of its checkpoint. A scope with a new
    name starts at `start_at`."""

    database: FollowedDatabase | None = None
    """The database to follow. Without it, the scope follows the whole cluster."""

    collection: CollectionName | None = None
    """The collection to follow. Without it, the scope follows every collection of the database."""

    pipeline: Stages = ()
    """Aggregation stages after `$changeStream`. The server does not send the events that they
    filter out. If you change the pipeline, the scope resumes from the time of its checkpoint:
    duplicates are possible, but nothing is lost. An unquoted date of the file is a BSON date, in
    UTC if it has no zone."""

    full_document: Text | None = None
    """`lookup`, `updateLookup`, `whenAvailable` or `required`: updates carry the document after the
    change. Without this key they carry only the changed fields, and the server looks nothing up.
    `lookup` gives the same as `updateLookup` (the document as it is now, null if it is gone) for
    less than half of the server's CPU time: Tailrace reads the documents of a reply with one query
    per collection. They are added after the `pipeline`, whose stages must neither read
    `fullDocument` nor change or remove it, `_id`, `operationType`, `ns` or `documentKey`."""

    full_document_before_change: Text | None = None
    """`whenAvailable` or `required`: events carry the document before the change. The collection
    needs `changeStreamPreAndPostImages`."""

    show_expanded_events: Flag = False
    """Send DDL events as well (`create`, `createIndexes`, `modify`, …). Needs server 6.0."""

    batch_size: Count | None = None
    """The largest number of events in a reply. Without it a reply has up to 16 MB, which is
    fastest, or less with a small `delivery.max_in_flight_bytes`."""

    max_await_time_ms: Count = 1000
    """How many milliseconds the server waits for a change before it sends an empty reply. Smaller
    values cost round trips on idle streams. After five empty replies in a row, reads wait four
    times as long, but at most 4 seconds, until a change comes; a change ends every wait."""

    read_preference: (
        Literal["primary", "primaryPreferred", "secondary", "secondaryPreferred", "nearest"] | None
    ) = None
    """The members of the replica set to read from. Without it, the connection string decides."""

    start_at: StartAt = "now"
    """Where a handler without a position starts: `now`, or an ISO 8601 time with an offset."""

    snapshot: Snapshot = Field(default_factory=SnapshotSettings)
    """Whether existing documents are delivered, and how they are read."""

    resume_after: OpaqueMapping | None = None
    """A resume token (`{_data: …}`) to start after, instead of `start_at`."""

    start_after: OpaqueMapping | None = None
    """The same as `resume_after`, but the token of an invalidate event is allowed as well."""

    split_large_events: Flag = False
    """Let the server split events of more than 16 MB (server 6.0.9, 7.0); Tailrace joins them
    again. With `false`, such an event halts the scope."""

    transactions: Literal["separate", "grouped"] = "separate"
    """`grouped` passes all events of a transaction to a batch handler in one call, whatever the
    number, and saves no position inside a transaction. A transaction must then fit into
    `delivery.max_in_flight_bytes`. `separate` treats its events like any others."""

    on_invalidate: Literal["continue", "stop"] = "continue"
    """What to do after the followed collection or database is dropped or renamed: `continue`
    follows the next one with the same name; `stop` ends the scope."""

    on_history_lost: Literal["halt", "skip", "snapshot"] = "halt"
    """What to do if the oplog no longer holds the checkpoint: `halt` waits for manual intervention;
    `skip` continues from now, which loses changes, and records a gap; `snapshot` does the same and
    then delivers all documents that exist now, as the key `snapshot` configures."""

    match_collection_uuid_for_update_lookup: Flag | None = None
    """Whether `updateLookup` ignores a document of another collection that was later renamed to
    this name (server 7.0.20, 8.0.9). Without this key, the server decides. `lookup` ignores such a
    document (server 6.0) unless this key is `false`."""

    trace: TraceSettings | None = None
    """Where documents carry the trace that changed them. Without it, no trace is sent on."""

    collation: OpaqueMapping | None = None
    """The collation for comparisons in the pipeline. Without it, comparisons are binary."""

    comment: Opaque = None
    """A comment that appears in the server's log and profiler."""


class RouteSettings(Section):
    """Passes changes of a scope to handlers. A handler gets a change once, even if several routes
    select it."""

    scope: Text
    """The name of the scope."""

    operations: OneOrMore[Text] | None = None
    """The operation types to pass on: `insert`, `update`, … as the server names them, and `read`,
    `snapshotBegin` and `snapshotEnd` for snapshots. Without this key, all of them. An event whose
    type the scope's pipeline removed is passed on."""

    namespaces: OneOrMore[NamespacePattern] | None = None
    """The namespaces to pass on: `database.collection`, with `*` for any part. Without this key,
    all of them. An event whose namespace the scope's pipeline removed is passed on."""

    start_at: StartAt | None = None
    """Where a handler of this route without a position starts, instead of the scope's `start_at`:
    a handler that is added later begins by itself, and the others do not notice. Of the routes of a
    handler and a scope, those that have this key must agree."""

    snapshot: Snapshot | None = None
    """The snapshot of the handlers of this route, instead of the whole `snapshot` of the scope. Its
    documents come to them alone. Of the routes of a handler and a scope, those that have this key
    must agree."""

    verify: VerificationSettings | None = None
    """How often all rows of the handlers of this route are compared with the source."""

    max_lag: MaxLag | None = None
    """How far the handlers of this route may be behind the server, as a number with a unit: `s`,
    `m`, `h` or `d`, as in `30s`. At least `1s`; on a sharded cluster more than `10s`, as an idle
    shard tells its time every 10 seconds. A handler that is further behind, for whatever reason, is
    shown by `tailrace_freshness_breached`, `/status` and the page; nothing else changes. Of the
    routes of a handler and a scope, those that have this key must agree."""

    handlers: OneOrMore[Text]
    """The names of the handlers that get the events of this route."""
