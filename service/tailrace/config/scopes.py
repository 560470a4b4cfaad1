"""What a scope and a route can be told."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Strict

from tailrace.config.fields import (
    CollectionName,
    Count,
    DatabaseName,
    Flag,
    Name,
    NamespacePattern,
    Opaque,
    OpaqueMapping,
    Section,
    Stages,
    StartAt,
    Text,
)


class ScopeSettings(Section):
    """One change stream: a collection, a database (no collection) or the cluster (neither).

    What the server alone understands is passed through unchecked, so that a newer server's
    options need no newer Tailrace.
    """

    name: Name
    """A name of yours: it labels metrics and keys the checkpoint. A renamed scope starts anew."""

    database: DatabaseName | None = None
    """The database. Default: none, which means the whole cluster."""

    collection: CollectionName | None = None
    """The collection. Default: none, which means every collection of the database."""

    pipeline: Stages = ()
    """Stages after `$changeStream`: what they filter out is never sent. Default: none. A changed
    pipeline goes on from the checkpoint's time: duplicates are possible, nothing is lost."""

    full_document: Text | None = None
    """`updateLookup`, `whenAvailable`, `required`: the document after an update. Default: none,
    so that updates carry only what changed and the server looks nothing up."""

    full_document_before_change: Text | None = None
    """`whenAvailable`, `required`: the document before the change; its collection must keep
    pre-images. Default: none."""

    show_expanded_events: Flag = False
    """DDL events as well (create, createIndexes, modify, …; server 6.0). Default: false."""

    batch_size: Count | None = None
    """Events per reply at most. Default: the server's (up to 16 MB a reply), which is fastest."""

    max_await_time_ms: Count = 1000
    """Milliseconds that the server waits for a change before an empty reply, and so how often an
    idle stream gives a sign of life. Default 1000. Less costs round trips, more delays a stop."""

    read_preference: (
        Literal["primary", "primaryPreferred", "secondary", "secondaryPreferred", "nearest"] | None
    ) = None
    """Which members the stream reads from. Default: what the URI says."""

    start_at: StartAt = "now"
    """Where to begin while there is no checkpoint: `now`, or an ISO 8601 time with an offset,
    which the oplog must still hold. Default `now`. Kept in UTC."""

    resume_after: OpaqueMapping | None = None
    """A resume token (`{_data: …}`) to begin behind while there is no checkpoint, instead of
    start_at. Default: none."""

    start_after: OpaqueMapping | None = None
    """The same for the token of an invalidate event, which only this accepts. Default: none."""

    split_large_events: Flag = False
    """Lets the server split events beyond 16 MB (server 6.0.9, 7.0), which are joined again here.
    Default: false, and such an event halts the scope."""

    transactions: Literal["separate", "grouped"] = "separate"
    """`grouped` hands the events of a transaction to handlers of sequences in one call, whatever
    its size, and saves no position inside it; it must fit into delivery.max_in_flight_bytes.
    `separate` (default) treats them as any others."""

    on_invalidate: Literal["continue", "stop"] = "continue"
    """After a drop or rename of what is followed: `continue` (default) with what comes after it
    under the same name, or `stop` following."""

    on_history_lost: Literal["halt", "skip"] = "halt"
    """When the oplog no longer holds the checkpoint: `halt` (default) for a person to decide, or
    `skip` to now, which loses changes and records a gap."""

    match_collection_uuid_for_update_lookup: Flag | None = None
    """Whether a looked-up document must be of the very collection that the change was in, and not
    of one renamed to its name since (server 7.0.20, 8.0.9). Default: the server's."""

    collation: OpaqueMapping | None = None
    """The collation of the pipeline's comparisons. Default: simple."""

    comment: Opaque = None
    """Found again in the server's log and profiler. Default: none."""


class RouteSettings(Section):
    """Hands changes of a scope to handlers. Of several routes each says what it wants; a handler
    gets an event once, however many of them want it."""

    scope: Text
    """The name of the scope."""

    operations: Annotated[tuple[Text, ...], Strict(False), Field(min_length=1)] | None = None
    """`insert`, `update`, … as the server names them. Default: all, also those yet unheard of.
    Events whose type the scope's pipeline has taken away pass as well."""

    namespaces: (
        Annotated[tuple[NamespacePattern, ...], Strict(False), Field(min_length=1)] | None
    ) = None
    """`database.collection`, with `*` for any part. Default: everything in the scope. Events whose
    namespace the scope's pipeline has taken away pass as well."""

    handlers: Annotated[tuple[Text, ...], Strict(False), Field(min_length=1)]
    """The names of the handlers that get every event of this route."""
