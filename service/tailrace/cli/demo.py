"""``tailrace demo``: the whole thing on one machine."""

from __future__ import annotations

import argparse

import anyio

from tailrace.demo import demonstrate


def run(options: argparse.Namespace) -> int:
    """Exit code 0 only if the tables equal the source."""
    return anyio.run(demonstrate, options.events, options.directory, options.uri)
