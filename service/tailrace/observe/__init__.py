"""Logs, metrics, health and the small HTTP server. Knows plain data only, nothing of the engine."""
