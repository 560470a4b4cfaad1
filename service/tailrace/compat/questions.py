"""The table of questions, in the order in which they are asked.

Tests compare it with docs/supported_versions.py: what a test only scripts for a version is asked
here of a real server.
"""

from tailrace.compat import events, refusals, server, sharding, snapshots, stores, streams, tokens
from tailrace.compat.site import Question

_STORE = "`store.type: mongodb`"
_IDLE = "positions of scopes without changes"
_DATABASE, _CLUSTER, _SHARDS = (
    "scopes of a database",
    "scopes of the cluster",
    "sharded collections",
)
_IMAGES, _LOOKUP = "`required`, `whenAvailable`", "`full_document: updateLookup`"
_FOREIGN, _WINDOW = "refusal of another cluster's position", "the metric of the oplog's window"
_FACT = "nothing: a fact for the report"

_COMPATIBILITY = server.fact(
    "version",
    *("featureCompatibilityVersion", "version"),
    getParameter=1,
    featureCompatibilityVersion=1,
)
_STORAGE = server.fact("engine", "storageEngine", "name", serverStatus=1, metrics=0, repl=0)
_CURSORS = server.fact("timeout_ms", "cursorTimeoutMillis", getParameter=1, cursorTimeoutMillis=1)
_TIME_LIMIT = server.fact(
    "read_ms",
    *("clusterParameters", 0, "readOperations"),
    getClusterParameter="defaultMaxTimeMS",
)

QUESTIONS = (
    Question("server.version", "version, topology and edition", server.version),
    Question("server.limits", "sizes, and sessions", server.limits),
    Question("server.compatibility", "feature compatibility", _COMPATIBILITY, _FACT),
    Question("server.storage", "the storage engine", _STORAGE, _FACT),
    Question("server.cursors", "how long idle cursors live", _CURSORS, _FACT),
    Question("server.time_limit", "`defaultMaxTimeMS`", _TIME_LIMIT, _FACT),
    Question("server.identity", "the cluster's id", server.cluster_identity, _FOREIGN),
    Question("server.oplog", "how far the oplog reaches", server.oplog_window, _WINDOW),
    Question("stream.collection", "a stream of a collection", streams.collection),
    Question("stream.database", "a stream of a database", streams.database, _DATABASE),
    Question("stream.cluster", "a stream of the cluster is opened", streams.cluster, _CLUSTER),
    Question("stream.await", "an empty read waits as long as asked", streams.await_time),
    Question("stream.batch", "replies have no more events than asked for", streams.batch_size),
    Question("stream.killed", "a stream whose cursor was killed is resumed", streams.killed_cursor),
    Question("resume.after", "from a token: `resumeAfter`", streams.resume_after),
    Question("resume.start_after", "from a token: `startAfter`", streams.start_after),
    Question("resume.time", "from a time: `startAtOperationTime`", streams.start_at_time),
    Question("token.empty", "empty replies have a token", tokens.empty_replies, _IDLE),
    Question("token.advances", "tokens move without changes", tokens.advancing_tokens, _IDLE),
    Question("token.order", "the text of tokens sorts as the stream", tokens.token_order),
    Question("invalidate.drop", "a drop, and the stream after it", streams.dropped),
    Question("invalidate.rename", "a rename, and the stream after it", streams.renamed),
    Question("event.expanded", "DDL is shown", events.expanded, "`show_expanded_events`"),
    Question("event.images", "images before and after", events.images, _IMAGES),
    Question(
        "event.wall_time", "events have `wallTime`", events.wall_time, "latency below a second"
    ),
    Question("event.paths", "`disambiguatedPaths`", events.disambiguated_paths, "fields with dots"),
    Question(
        "event.split", "events over 16 MB come in parts", events.split, "`split_large_events`"
    ),
    Question(
        "event.transaction", "changes tell their transaction", events.transactions, "`transactions`"
    ),
    Question("lookup.server", "`updateLookup`", events.server_look_up, _LOOKUP),
    Question(
        "lookup.own",
        "documents that Tailrace looks up",
        events.own_look_up,
        "`full_document: lookup`",
    ),
    Question("sharding.key", "`documentKey` has the shard key", sharding.document_keys, _SHARDS),
    Question("sharding.lookup", "look-ups when shard keys change", sharding.look_ups, _SHARDS),
    Question("snapshot.time", "documents as of a time", snapshots.read_at_time, "`snapshot`"),
    Question("snapshot.writes", "a snapshot beside writes", snapshots.beside_writes, "`snapshot`"),
    Question("store.positions", "fenced positions of a majority", stores.checkpoints, _STORE),
    Question("store.leases", "a lease has one owner", stores.leases, _STORE),
    Question("store.letters", "dead letters, with unique indexes", stores.dead_letters, _STORE),
    Question("refusal.token", "the code of an unknown token", refusals.unknown_token),
    Question(
        "refusal.history",
        "that of a time before the oplog",
        refusals.lost_history,
        "`on_history_lost`",
    ),
    Question(
        "refusal.login", "that of an unknown login", refusals.unauthorised, "rotations of logins"
    ),
    Question("refusal.stage", "that of an unknown stage", refusals.unknown_stage, _FACT),
    Question("stream.election", "writes and streams go on", streams.elections, "elections", 60.0),
    Question("invalidate.database", "`dropDatabase`", streams.dropped_database, _DATABASE),
)
ELECTION = "stream.election"
"""Asked only if it is asked for."""
