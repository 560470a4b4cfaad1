"""Tailrace: follows MongoDB change streams and hands every change, in order, to handlers."""

__version__ = "0.1.0"
