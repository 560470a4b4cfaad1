"""What the health checks and ``/status`` say of the process, also while it is starting."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tailrace.engine import ClusterWatch, Supervisor
from tailrace.model.cluster import ClusterIdentity
from tailrace.replicas.leases import Leases
from tailrace.stream import Interrupt
from tailrace.verify.rounds import Rounds
from tailrace.version import __version__


@dataclass(slots=True)
class ProcessStatus:
    """``cluster``, ``server``, ``leases`` and ``rounds`` are ``None`` until they are known."""

    supervisor: Supervisor
    stop: Interrupt
    driver: Callable[[], str]
    cluster: ClusterIdentity | None = None
    server: ClusterWatch | None = None
    leases: Leases | None = None
    rounds: Rounds | None = None
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def not_ready(self) -> list[str]:
        """Why the process is not ready; nothing if it is."""
        return ["stopping"] if self.stop.is_set else self.supervisor.not_ready()

    def degraded(self) -> list[str]:
        """What runs worse than it should."""
        return self.supervisor.degraded() + (self.leases.degraded() if self.leases else [])

    def document(self) -> dict[str, Any]:
        """The document of ``/status``."""
        return {
            "version": __version__,
            "now": datetime.now(UTC).isoformat(),
            "started_at": self.started_at.isoformat(),
            "driver": self.driver(),
            "cluster": str(self.cluster) if self.cluster else None,
            "server": self.server.document() if self.server else None,
            "ready": not self.not_ready(),
            "degraded": self.degraded(),
            "stopping": self.stop.is_set,
            "members": self.leases.members() if self.leases else None,
            "scopes": self.rounds.added_to(self.supervisor.status()) if self.rounds else {},
        }
