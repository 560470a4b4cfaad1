"""``tailrace health``: asks the daemon on this machine."""

from __future__ import annotations

import argparse
import sys

from tailrace.cli.reading import read_settings
from tailrace.observe import health_check


def run(options: argparse.Namespace) -> int:
    """Exit code 0 where the daemon answers that all is well."""
    http = read_settings(options).http
    well, answer = health_check.ask(http.host, http.port, "/readyz" if options.ready else "/livez")
    print(answer, file=sys.stdout if well else sys.stderr)
    return 0 if well else 1
