"""``tailrace demo``: the whole system on one machine; 0 only if the result equals the source.

Exit codes: 0 what arrived equals the source, 1 it does not, or a part failed, 2 wrong usage.
"""

import argparse
from pathlib import Path

_DESTINATIONS = ("postgresql", "mongodb", "kafka", "nats", "redis", "http")


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument(
        "--events", type=_positive, default=5000, metavar="N", help="about how many changes"
    )
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path("demo-data"),
        metavar="DIR",
        help="where it writes; default: demo-data",
    )
    parser.add_argument("--uri", help="use this replica set instead of an embedded server")
    parser.add_argument(
        "--to",
        choices=_DESTINATIONS,
        metavar="TYPE",
        help=f"a destination instead of tables: {', '.join(_DESTINATIONS)}",
    )


def run(options: argparse.Namespace) -> int:
    """Runs the demo."""
    import anyio

    from tailrace.demo import demonstrate

    return anyio.run(demonstrate, options.events, options.directory, options.uri, options.to)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number
