"""Logs, metrics, health and the small HTTP server. Uses plain data, and nothing of the engine."""
