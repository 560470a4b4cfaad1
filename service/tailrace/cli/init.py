"""``tailrace init``: writes a working project, a configuration with a handler and its test.

Exit codes: 0 written, 2 wrong usage, or a file is there already or cannot be written.
"""

import argparse
import os
from importlib.resources import files
from pathlib import Path

from tailrace.cli.arguments import refuse

_NEXT = """\
Next, in {}:
  pytest                      # tests the handler, without a server
  tailrace check --connect    # validates config.yaml, tries the server at MONGODB_URI
  tailrace run"""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument(
        "directory",
        nargs="?",
        type=Path,
        default=Path(),
        metavar="DIRECTORY",
        help="where to write; default: the current directory",
    )


def run(options: argparse.Namespace) -> int:
    """Writes the files of ``project/``, and overwrites none."""
    directory: Path = options.directory
    project = (files("tailrace.cli") / "project").iterdir()
    templates = {each.name: each.read_bytes() for each in project if each.is_file()}
    if there := sorted(name for name in templates if os.path.lexists(directory / name)):
        refuse(str(directory / there[0]), "is there already, so nothing was written")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in sorted(templates.items()):
            with (directory / name).open("xb") as file:
                file.write(text)
            print(f"wrote {directory / name}")
    except OSError as error:
        refuse(str(directory), f"cannot be written: {error.strerror or error}")
    print(_NEXT.format(directory.resolve()))
    return 0
