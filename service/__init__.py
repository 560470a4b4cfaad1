"""Tailrace: follows MongoDB change streams and hands every change, in order, to handlers."""
