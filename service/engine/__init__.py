"""Moves changes from streams to handlers and remembers how far they got.

A :class:`Supervisor` keeps one :class:`Watcher` per scope. A watcher reads batches, gives each
chunk a place in line (:mod:`in_flight`), hands the places to one lane per handler (:mod:`lanes`),
and saves the watermark (:mod:`checkpointer`). Which server, which store and which destinations
there are is decided above, in :mod:`service.app`.
"""

from service.engine.backoff import BackoffPolicy
from service.engine.budget import ByteBudget
from service.engine.cluster_watch import ClusterWatch
from service.engine.culprit import culprit
from service.engine.following import Following, Surroundings
from service.engine.letters_watch import LettersWatch
from service.engine.ports import CheckpointStore, Commit, Handler, Owner
from service.engine.router import Routed, routed
from service.engine.server_clock import ServerClock
from service.engine.state import WatcherState
from service.engine.supervisor import Supervisor
from service.engine.watcher import Watcher

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
