"""Applies a changed configuration to the running process: only what changed is begun anew."""

from tailrace.reload.clients import ClientPlan, Clients, source_clients
from tailrace.reload.hang_ups import HangUps
from tailrace.reload.reloader import SPARE_STREAMS, Reloader
from tailrace.reload.wanted import Wanted

__all__ = [
    "SPARE_STREAMS",
    "ClientPlan",
    "Clients",
    "HangUps",
    "Reloader",
    "Wanted",
    "source_clients",
]
