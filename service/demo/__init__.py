"""The whole of Tailrace on one machine with nothing installed: server, workload, service, proof."""

from service.demo.demonstration import demonstrate

__all__ = ["demonstrate"]
