"""Moves changes from streams to handlers and remembers how far they got.

A :class:`Supervisor` keeps one :class:`Watcher` per scope. A watcher reads batches, gives each
chunk a place in line (:mod:`in_flight`), hands the places to one lane per handler (:mod:`lanes`),
and saves the watermark (:mod:`checkpointer`). Which server, which store and which destinations
there are is decided above, in :mod:`tailrace.app`.
"""

from tailrace.engine.backoff import BackoffPolicy
from tailrace.engine.budget import ByteBudget
from tailrace.engine.cluster_watch import ClusterWatch
from tailrace.engine.culprit import culprit
from tailrace.engine.following import Following, Surroundings
from tailrace.engine.letters_watch import LettersWatch
from tailrace.engine.ports import CheckpointStore, Commit, Handler, Owner
from tailrace.engine.router import Routed, routed
from tailrace.engine.server_clock import ServerClock
from tailrace.engine.state import WatcherState
from tailrace.engine.supervisor import Supervisor
from tailrace.engine.watcher import Watcher

__all__ = [
    "BackoffPolicy",
    "ByteBudget",
    "CheckpointStore",
    "ClusterWatch",
    "Commit",
    "Following",
    "Handler",
    "LettersWatch",
    "Owner",
    "Routed",
    "ServerClock",
    "Supervisor",
    "Surroundings",
    "Watcher",
    "WatcherState",
    "culprit",
    "routed",
]
