"""``tailrace migrate``: writes a configuration that continues where another tool stopped.

Exit codes: 0 written, or with --dry-run shown; 1 the server does not answer; 2 wrong usage, a file
that cannot be migrated, or a position that the server refuses.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.cli.arguments import refuse

if TYPE_CHECKING:
    from tailrace.config.settings import Settings

_PEERS = ("debezium", "mongo-kafka", "redpanda")
_SHOWN = 10
"""How many changes --dry-run shows."""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("file", metavar="FILE", help="the other tool's configuration")
    parser.add_argument(
        "--from",
        dest="peer",
        required=True,
        choices=_PEERS,
        metavar="TOOL",
        help=f"whose configuration it is: {', '.join(_PEERS)}",
    )
    parser.add_argument(
        "--offsets",
        metavar="FILE",
        help="the tool's offsets, whose resume token becomes the start of the scope",
    )
    parser.add_argument("--output", metavar="FILE", help="where to write; default: standard output")
    parser.add_argument(
        "--overwrite", action="store_true", help="replace the file of --output if it is there"
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help=f"show the next {_SHOWN} changes from the resume token, and write nothing",
    )
    parser.add_argument(
        "--uri", help="the server for --dry-run; default: that of the configuration"
    )


def run(options: argparse.Namespace) -> int:
    """Converts the file, and writes the result or shows the changes that come next."""
    from tailrace.migrate.conversion import settings_of, text_of
    from tailrace.migrate.offsets import token_of

    if options.dry_run and not options.offsets:
        refuse("--dry-run", "needs --offsets: it shows the changes after a resume token")
    if options.uri and not options.dry_run:
        refuse("--uri", "needs --dry-run: the written file has the URI of the other tool's")
    if options.overwrite and not options.output:
        refuse("--overwrite", "needs --output")
    reader = import_module(f"tailrace.migrate.{options.peer.replace('-', '_')}")
    conversion, token = reader.read(options.file), None
    if options.offsets:
        token = token_of(conversion.peer, options.offsets, conversion.offsets_name, conversion.key)
    if options.uri:
        conversion.uri = options.uri
    config = conversion.configuration(token)
    text = text_of(conversion, config, options.file)
    settings = settings_of(conversion, text, options.file, os.environ)
    if options.dry_run:
        return _preview(settings, options)
    if options.output:
        _write(options.output, text, overwrite=options.overwrite)
    else:
        print(text, end="")
    for lost in conversion.lost:
        print(f"tailrace: not carried over: {lost}", file=sys.stderr)
    return 0


def _preview(settings: Settings, options: argparse.Namespace) -> int:
    import anyio

    from tailrace.migrate.preview import preview

    shown = anyio.run(preview, settings, options.offsets, _SHOWN, print)
    if shown < _SHOWN:
        print("there are no further changes until now" if shown else "there are no changes yet")
    return 0


def _write(file: str, text: str, *, overwrite: bool) -> None:
    try:
        with Path(file).open("w" if overwrite else "x", encoding="utf-8") as output:
            output.write(text)
    except FileExistsError:
        refuse(file, "is there already, so nothing was written: --overwrite replaces it")
    except OSError as error:
        refuse(file, f"cannot be written: {error.strerror or error}")
    print(f"wrote {file}", file=sys.stderr)
