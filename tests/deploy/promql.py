"""The metrics that an expression uses, found by regular expressions that suffice for our files."""

import re

from prometheus_client import generate_latest

from tailrace.destinations.postgresql.destination import misfit_counter
from tailrace.engine import WatcherState
from tailrace.observe.metrics import Metrics
from tailrace.observe.table_metrics import TableMetrics

_NO_NAMES = re.compile(
    r"""
    "[^"]*"                                                     # text
    | \[[^\]]*\]                                                # a range
    | \b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)  # labels
    """,
    re.VERBOSE,
)
_MATCHERS = re.compile(r"\{[^}]*\}")
_NAME = re.compile(r"(?<![\w:.])[a-zA-Z_:][\w:]*(?![\w:]*\s*\()")
_WORDS = frozenset({"and", "or", "unless", "bool", "offset"})


def metric_names(expression: str) -> set[str]:
    """All metric names of the expression; a name before a bracket is a function."""
    bare = _MATCHERS.sub(" ", _NO_NAMES.sub(" ", expression))
    return set(_NAME.findall(bare)) - _WORDS


def exported_names() -> set[str]:
    """All samples that daemon and pipeline declare, including those without a value yet."""
    daemon, names = Metrics(state.value for state in WatcherState), set()
    misfit_counter(daemon.registry)
    pipeline = TableMetrics(dict, dict)
    declared = generate_latest(daemon.registry) + generate_latest(pipeline.registry)
    for line in declared.decode().splitlines():
        match line.split():
            case ["#", "TYPE", name, "histogram"]:
                names |= {f"{name}_{part}" for part in ("bucket", "count", "sum")}
            case ["#", "TYPE", name, _]:
                names.add(name)
    return names
