"""The metrics that a scrape computes: names, meanings, labels and bounds."""

from tailrace.observe.handler_recorder import SECONDS
from tailrace.observe.latency import LATENCIES

SCOPE = ("scope",)
HANDLER = ("scope", "handler")

# Metrics that a scrape computes, by name without "tailrace_" and "_total": meaning and labels.
COUNTERS = {
    "events_handled": ("Events handed to handlers, by outcome.", (*HANDLER, "outcome")),
    "handler_retries": ("Further attempts after a handler failed.", HANDLER),
    "dead_letters": ("Events that became dead letters.", HANDLER),
    "stream_resumes": ("Change streams resumed after an error.", (*SCOPE, "reason")),
    "snapshot_documents": (
        "Documents of the last snapshot that were delivered.",
        (*SCOPE, "collection"),
    ),
    "verified_documents": ("Documents that whole verifications have compared.", HANDLER),
    "log_lines_dropped": ("Lines of output lost because their reader was gone or too slow.", ()),
}
GAUGES = {
    "watcher_state": ("1 for the state that the scope is in.", (*SCOPE, "state")),
    "in_flight_events": ("Events read and not yet handled.", SCOPE),
    "in_flight_bytes": ("Raw bytes of the events in flight.", SCOPE),
    "lag_seconds": (
        "Seconds of cluster time between the server and this stage of a handler; without a "
        "handler, of the scope's last one.",
        (*SCOPE, "stage", "handler"),
    ),
    "subscription_state": ("1 for the state that the handler is in.", (*HANDLER, "state")),
    "freshness_breached": (
        "1 while the handler is further behind the server than max_lag of its route, also if "
        "nothing is handled or known.",
        HANDLER,
    ),
    "streams_open": ("Streams that the scope reads, with those of handlers on their own.", SCOPE),
    "checkpoint_age_seconds": ("Seconds since the last successful checkpoint save.", SCOPE),
    "last_round_trip_timestamp_seconds": ("Unix time of the server's last answer.", SCOPE),
    "dead_letters_waiting": (
        "Dead letters in the store that are neither replayed nor discarded.",
        HANDLER,
    ),
    "snapshot_remaining_documents": (
        "About how many documents the snapshot has still to read.",
        (*SCOPE, "collection"),
    ),
    "lease_held": ("1 where this process has the lease of the scope.", SCOPE),
    "lease_epoch": ("The epoch of the scope's lease: it grows with each owner.", SCOPE),
    "destination_up": ("1 while the handler's destination answers, 0 in an outage.", HANDLER),
    "handler_overdue": ("Attempts that still run beyond their time limit.", HANDLER),
    "handler_call_seconds": (
        "How long the longest call of the handler has run, if that is unusually long; else 0.",
        HANDLER,
    ),
    "differing_documents": (
        "Documents that differed from their rows in the last whole verification.",
        HANDLER,
    ),
    "verified_through_timestamp": (
        "Unix time up to which the last whole verification has compared the rows.",
        HANDLER,
    ),
    "verification_late_timestamp": (
        "Unix time from which on a verification is late: that of verify.every in a route.",
        HANDLER,
    ),
    "server_up": ("1 while the MongoDB server answers, 0 after 2.5 s without any answer.", ()),
    "oplog_window_seconds": (
        "Seconds between the oplog's first and last entry, as last read.",
        (),
    ),
    "oplog_window_age_seconds": ("Seconds since the oplog was last read.", ()),
    "oplog_fill_ratio": (
        "Share of the oplog's size in use; below 1 nothing was truncated yet.",
        (),
    ),
}
# Histograms, by name without "tailrace_": meaning and upper bounds.
HISTOGRAMS = {
    "handler_seconds": ("Seconds that one call of a handler took.", SECONDS),
    "end_to_end_latency_seconds": (
        "Seconds from a change, by the server's clock, until the handler had handled it.",
        LATENCIES,
    ),
}
