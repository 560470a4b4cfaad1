"""What became of a document, as text for a terminal."""

from collections.abc import Iterator, Mapping
from typing import Any, TextIO

from tailrace.observe.terminal_text import (
    CONTROL,
    UNKNOWN,
    Colour,
    columns,
    escaped,
    fields,
    paint,
    printable,
)

_COLOURS = {
    "handled": Colour.GREEN,
    "dead_letter": Colour.RED,
    "behind_dead_letter": Colour.RED,
    "before_start": Colour.YELLOW,
    "in_gap": Colour.YELLOW,
    "filtered": Colour.YELLOW,
}


def text_of(answer: Mapping[str, Any], out: TextIO) -> str:
    """The answer of ``GET /scopes/NAME/why``, with colours if ``out`` is a terminal."""
    return "".join(_lines(answer, out))


def _lines(answer: Mapping[str, Any], out: TextIO) -> Iterator[str]:
    yield f"{printable(answer['summary'])}\n\n"
    exists = {True: "exists", False: "does not exist", None: "unknown"}[answer["exists"]]
    yield fields(
        [
            ("scope", printable(answer["scope"])),
            ("key", printable(answer["key"])),
            ("document", exists),
            ("started", answer["started_at"] or UNKNOWN),
            ("checkpoint", answer["checkpoint_at"] or UNKNOWN),
            ("read up to", answer["read_to"] or UNKNOWN),
            ("searched from", answer["searched_since"] or UNKNOWN),
        ]
    )
    for change in answer["changes"]:
        when = change["cluster_time"] or "unknown time"
        sources = ", ".join(change["found_in"])
        yield f"\n{when}  {change['operation']} of {printable(change['namespace'])}"
        yield f"  ({change['id']}; found in {sources})\n"
        for handler, outcome in change["handlers"].items():
            state = outcome["state"].replace("_", " ")
            shown = paint(state, _COLOURS.get(outcome["state"], Colour.BLUE), out)
            letter = f" [{outcome['letter']}]" if outcome["letter"] else ""
            yield f"  {handler}: {shown}{letter}: {printable(outcome['detail'])}\n"
        if not change["handlers"]:
            yield "  no route takes changes of this scope\n"
    if answer["landed"]:
        rows = [
            (
                each["cluster_time"] or UNKNOWN,
                each["operation"],
                str(each["ordinal"]),
                printable(each["segment"]),
            )
            for each in answer["landed"]
        ]
        yield "\n" + columns(("LANDED", "OPERATION", "ORDINAL", "SEGMENT"), rows)
    yield from _tables(answer)
    for repair in answer["repairs"]:
        yield f"\n{repair['reason']}\n  {CONTROL.sub(escaped, repair['command'])}\n"
    if answer["unknown"]:
        yield "\nNot known:\n" + "".join(f"  {printable(each)}\n" for each in answer["unknown"])


def _tables(answer: Mapping[str, Any]) -> Iterator[str]:
    if not answer["tables"]:
        if answer["landed"]:
            yield "Set pipeline.tables, or use --tables DIR, to see which tables have it.\n"
        return
    newest = max((each["number"] for each in answer["landed"]), default=None)
    headings = ("TABLE", "VERSION", "PUBLISHED", "HAS SEGMENTS UP TO", "HAS THE DOCUMENT")
    yield "\n" + columns(headings, [_table(each, newest) for each in answer["tables"]])


def _table(table: Mapping[str, Any], newest: int | None) -> tuple[str, ...]:
    """A table; ``newest``: the segment with the document's last landed change."""
    segment = str(table["segment"]) if table["segment"] >= 0 else UNKNOWN
    if newest is not None and table["segment"] < newest:
        segment += f", not yet {newest}"
    has = {True: "yes", False: "no", None: UNKNOWN}[table["has_document"]]
    if table["has_document"]:
        has = f"as of {table['operation']} at {table['cluster_time'] or UNKNOWN}"
        has += f", event {table['ordinal']}"
    version = str(table["version"]) if table["version"] >= 0 else "no table yet"
    return printable(table["table"]), version, table["published_at"] or "never", segment, has
