"""Applies a changed configuration to the running process: only what changed is restarted."""

from tailrace.reload.clients import ClientPlan, Clients, source_clients
from tailrace.reload.desired_config import DesiredConfig
from tailrace.reload.reloader import SPARE_STREAMS, Reloader
from tailrace.reload.sighup import Sighup

__all__ = [
    "SPARE_STREAMS",
    "ClientPlan",
    "Clients",
    "DesiredConfig",
    "Reloader",
    "Sighup",
    "source_clients",
]
