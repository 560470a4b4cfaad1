"""Declared columns: typed fields of documents, and the values that do not fit their type.

A value is in its column or, unchanged, in ``_rescued``. A value does not fit if its type would
round or truncate it. Everything is SQL over the document as VARIANT and its text.
"""

from collections.abc import Callable, Iterator, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tailrace.config.pipeline import column_path

COLUMNS = "tailrace.columns"
"""The log's property that declares the columns of each table: path to type."""

UNREADABLE = "document"
"""The key in ``_rescued`` of a document that no VARIANT can hold: it has a field twice."""

_PLAIN = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_EXACT_DECIMAL = (
    "({text} LIKE '%E+%' OR "
    r"length(rtrim('0', regexp_extract({text}, r'\.([0-9]*)', 1))) "
    r"+ coalesce(try_cast(regexp_extract({text}, r'E-([0-9]+)$', 1) AS INT), 0) <= 10)"
)
"""Whether ten digits after the point are enough: MongoDB writes E+ only for whole numbers."""

_FIRST_YEAR, _LAST_YEAR = -62_135_596_800_000, 253_402_300_799_999
"""The range of TIMESTAMP in SQL, the years 1 to 9999, in milliseconds."""


def variant(text: str) -> str:
    """A document's canonical text as VARIANT with plain numbers; null if no VARIANT can hold it."""
    # Quotes inside a string are escaped, so the pattern never matches there.
    for kind in ("Int", "Long", "Double"):
        text = f"regexp_replace({text}, r'\\{{\"\\$number{kind}\":\"({_PLAIN})\"\\}}', '$1')"
    return f"try_parse_json({text})"


def typed(rows: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """Rows with ``document`` as VARIANT, its text as ``json``, and the typed columns.

    ``_rescued`` is a JSON object: path to canonical Extended JSON as text. Raises ``ValueError``
    for a path or a type that ``pipeline.columns`` does not allow.
    """
    rows = rows.selectExpr(
        *("document AS json" if name == "document" else name for name in rows.columns),
        f"{variant('document')} AS document",
    )
    if not columns:
        return rows
    own = rows.columns
    rescued = [
        f"IF({condition}, named_struct('path', '{path}', 'value', {_exactly(path)}), NULL)"
        for path, condition in misfits("document", "json", columns)
    ]
    rows = fitted(rows, "document", columns).selectExpr(
        *own,
        *(f"fitted_{at} AS `{path}`" for at, path in enumerate(columns)),
        f"filter(array({', '.join(rescued)}), each -> each IS NOT NULL) AS rescued",
    )
    pairs = "IF(size(rescued) > 0, to_json(map_from_entries(rescued)), NULL)"
    return rows.withColumn("_rescued", F.expr(pairs)).drop("rescued")


def fitted(rows: DataFrame, document: str, columns: Mapping[str, str]) -> DataFrame:
    """Adds ``found_N``, the value at the N-th path, and ``fitted_N``, that value in its type (null
    if it does not fit). Two steps, so that Spark looks up each value once."""
    found = [f"{_value(document, path)} AS found_{at}" for at, path in enumerate(columns)]
    made = [f"{_column(path, f'found_{at}')} AS fitted_{at}"
            for at, path in enumerate(columns.items())]  # fmt: skip
    return rows.selectExpr("*", *found).selectExpr("*", *made)


def misfits(document: str, text: str, columns: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """For each path, the condition that a value of :func:`fitted` rows goes to ``_rescued``. The
    last one is for the whole document."""
    for at, path in enumerate(columns):
        there = f"found_{at} IS NOT NULL AND NOT is_variant_null(found_{at})"
        yield path, f"{there} AND fitted_{at} IS NULL"
    if columns:
        yield UNREADABLE, f"{text} IS NOT NULL AND {document} IS NULL"


def _exactly(path: str) -> str:
    """The canonical text of a value, as it was landed."""
    if path == UNREADABLE:
        return "json"
    return f"to_json({_value('try_parse_json(json)', path)})"


def _column(column: tuple[str, str], value: str) -> str:
    """SQL for a value in its column's type; null if it does not fit."""
    path, kind = column
    if kind not in _TYPES:
        raise ValueError(f"{path}: there is no type {kind!r}; known: {', '.join(_TYPES)}")
    return _TYPES[kind](value)


def _plain(type_: str) -> Callable[[str], str]:
    """SQL for a type that VARIANT has itself."""
    return lambda value: f"IF({_seen(value)} = '{type_}', {_as(value, type_)}, NULL)"


def _double(value: str) -> str:
    """Any number that a double holds exactly, and those that JSON cannot write (NaN, infinity)."""
    special = _inside(value, "$numberDouble")
    number, whole = _as(value, "DOUBLE"), _as(value, "BIGINT")
    # A cast of 2 ** 63 gives the largest long, which would then seem equal.
    exact = f"{number} < 9223372036854775808D AND CAST({number} AS BIGINT) = {whole}"
    return (
        f"CASE WHEN {_seen(value)} = 'DOUBLE' OR {_seen(value)} LIKE 'DECIMAL%' THEN {number} "
        f"WHEN {_seen(value)} = 'BIGINT' THEN IF({exact}, {number}, NULL) "
        f"WHEN {_seen(special)} = 'STRING' THEN try_cast({_as(special, 'STRING')} AS DOUBLE) END"
    )


def _timestamp(value: str) -> str:
    date = _inside(value, "$date")
    found = _as(date, "BIGINT")
    fits = f"{_seen(date)} = 'BIGINT' AND {found} BETWEEN {_FIRST_YEAR} AND {_LAST_YEAR}"
    return f"IF({fits}, timestamp_millis({found}), NULL)"


def _decimal(value: str) -> str:
    digits = _inside(value, "$numberDecimal")
    found = _as(digits, "STRING")
    fits = f"{_seen(digits)} = 'STRING' AND {_EXACT_DECIMAL.format(text=found)}"
    return f"IF({fits}, try_cast({found} AS DECIMAL(38, 10)), NULL)"


_TYPES = {
    "string": _plain("STRING"),
    "long": _plain("BIGINT"),
    "double": _double,
    "boolean": _plain("BOOLEAN"),
    "timestamp": _timestamp,
    "decimal": _decimal,
}


def _value(document: str, path: str) -> str:
    names = "".join(f'["{name}"]' for name in column_path(path).split("."))
    return f"variant_get({document}, '${names}')"


def _inside(value: str, name: str) -> str:
    return f"""variant_get({value}, '$["{name}"]')"""


def _seen(value: str) -> str:
    return f"schema_of_variant({value})"


def _as(value: str, type_: str) -> str:
    return f"try_variant_get({value}, '$', '{type_}')"
