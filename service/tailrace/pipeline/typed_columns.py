"""Declared columns: typed fields of documents, and the values that do not fit their type.

A value is in its column or, unchanged, in ``_rescued``. A value does not fit if its type would
round or truncate it. Everything is SQL over the document's canonical text, parsed once as VARIANT.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812

from tailrace.config.pipeline import ColumnType, TypedColumn
from tailrace.errors import PipelineRefused

Columns = Mapping[str, TypedColumn]
"""Declared columns by name."""

COLUMNS = "tailrace.columns"
"""The log's property that declares the columns of each table."""

RESCUED = "_rescued"

UNREADABLE = "document"
"""The key in ``_rescued`` of a document that no VARIANT can hold: it has a field twice."""

_PATH = "tailrace.path"
"""The key in a stored column's metadata of the path that it holds."""

_STORED: Mapping[ColumnType, T.DataType] = {
    "string": T.StringType(),
    "long": T.LongType(),
    "double": T.DoubleType(),
    "boolean": T.BooleanType(),
    "timestamp": T.TimestampType(),
    "decimal": T.DecimalType(38, 10),
}

_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_EXACT_DECIMAL = (
    "IF(instr({text}, 'E') = 0 AND (instr({text}, '.') = 0 OR "
    "length({text}) - instr({text}, '.') <= 10), true, {text} LIKE '%E+%' OR "
    r"length(rtrim('0', regexp_extract({text}, r'\.([0-9]*)', 1))) "
    r"+ coalesce(try_cast(regexp_extract({text}, r'E-([0-9]+)$', 1) AS INT), 0) <= 10)"
)
"""Whether ten digits after the point are enough: MongoDB writes E+ only for whole numbers. Usual
numbers need no pattern, which would cost as much as to parse the document."""

FIRST_YEAR, LAST_YEAR = -62_135_596_800_000, 253_402_300_799_999
"""The range of TIMESTAMP in SQL, the years 1 to 9999, in milliseconds."""


def schema_with(schema: T.StructType, columns: Columns) -> T.StructType:
    """A table's own schema, followed by the typed columns."""
    return T.StructType([*schema, *map(stored_field, columns, columns.values())])


def stored_field(name: str, column: TypedColumn) -> T.StructField:
    return T.StructField(name, _STORED[column.type], True, {_PATH: column.path})


def stored_columns(schema: T.StructType) -> Columns:
    """The typed columns of a table as it is stored."""
    kinds = {str(stored): kind for kind, stored in _STORED.items()}
    return {
        field.name: TypedColumn(type=kinds[str(field.dataType)], path=field.metadata[_PATH])
        for field in schema
        if _PATH in field.metadata
    }


def missing_columns(where: object, stored: Columns, declared: Columns) -> Columns:
    """The declared columns that a table does not have yet.

    Raises :class:`PipelineRefused` if it has one of another type, or of another field.
    """
    known = {name.lower(): name for name in stored}
    for name, column in declared.items():
        other = known.get(name.lower())
        if other is not None and (other, stored[other]) != (name, column):
            raise PipelineRefused(
                f"{where}: the column {other!r} holds {_described(stored[other])}, and the file "
                f"declares {name!r} as {_described(column)}. Give the new column another name "
                f"(NAME: {{path: {column.path}, type: {column.type}}}), or run with --rebuild"
            )
    return {name: column for name, column in declared.items() if name not in stored}


def _described(column: TypedColumn) -> str:
    return f"{column.path} as {column.type}"


def variant(text: str) -> str:
    """A document's canonical text as VARIANT with plain numbers; null if no VARIANT can hold it."""
    # Quotes inside a string are escaped, so the pattern never matches there.
    for kind in ("Int", "Long", "Double"):
        text = f"regexp_replace({text}, r'\\{{\"\\$number{kind}\":\"({_NUMBER})\"\\}}', '$1')"
    return f"try_parse_json({text})"


def evaluated(
    rows: DataFrame, text: str, columns: Columns, where: Mapping[str, str] | None = None
) -> DataFrame:
    """Adds ``typed_N``, the value of the N-th column (null if it does not fit), and what
    :func:`misfits` and :func:`rescued` need. ``text``: SQL for the document as canonical text.

    ``where``: by column, SQL for whether a row's table has it. In steps, so that Spark parses each
    document and looks up each value once, and has less code to compile.
    """
    if not columns:
        return rows
    rows = rows.selectExpr("*", f"{text} AS canonical")
    rows = rows.selectExpr("*", "try_parse_json(canonical) AS parsed")
    trees = _trees(columns)
    casts = (f"try_variant_get(parsed, '$', '{_shape(tree)}')" for tree in trees)
    rows = rows.selectExpr("*", *(f"{cast} AS tree_{at}" for at, cast in enumerate(casts)))
    found = {
        name: f"tree_{at}.{_fields(column)}"
        for at, tree in enumerate(trees)
        for name, column in tree.items()
    }
    variants = [name for name, column in columns.items() if _FORMS[column.type] == "variant"]
    texts = {name: f"json_{at}" for at, name in enumerate(variants)}
    rows = rows.selectExpr("*", *(f"to_json({found[name]}) AS {texts[name]}" for name in texts))
    found |= texts
    values = {name: _TYPES[column.type](found[name]) for name, column in columns.items()}
    if where is not None:
        values = {name: f"IF({where[name]}, {value}, NULL)" for name, value in values.items()}
    typed = (f"{values[name]} AS typed_{at}" for at, name in enumerate(columns))
    rows = rows.selectExpr("*", *typed)
    flags = enumerate(_misfits(columns, where))
    return rows.selectExpr("*", *(f"{test} AS misfit_{at}" for at, test in flags))


def _trees(columns: Columns) -> list[dict[str, TypedColumn]]:
    """The columns in groups, each of which one cast to a structure takes from a document: no path
    leads through another one, and no two differ only in the case of a name."""
    trees: list[dict[str, TypedColumn]] = []
    for name, column in columns.items():
        for tree in trees:
            if not any(_collide(_parts(column), _parts(other)) for other in tree.values()):
                tree[name] = column
                break
        else:
            trees.append({name: column})
    return trees


def _collide(one: Sequence[str], other: Sequence[str]) -> bool:
    for here, there in zip(one, other, strict=False):
        if here != there:
            return here.lower() == there.lower()
    return True


def _shape(tree: Columns) -> str:
    """The type of a structure with the fields of these columns."""
    nested: dict[str, Any] = {}
    for column in tree.values():
        *parents, name = _parts(column)
        inside = nested
        for parent in parents:
            inside = inside.setdefault(parent, {})
        inside[name] = _FORMS[column.type]

    def text(fields: Mapping[str, Any]) -> str:
        some = (
            f"`{name}`: {form if isinstance(form, str) else text(form)}"
            for name, form in fields.items()
        )
        return f"struct<{', '.join(some)}>"

    return text(nested)


def _misfits(columns: Columns, where: Mapping[str, str] | None) -> Iterator[str]:
    for at, (name, column) in enumerate(columns.items()):
        found = _found(column)
        there = f"{found} IS NOT NULL AND NOT is_variant_null({found})"
        wanted = "" if where is None else f" AND {where[name]}"
        # With AND instead of IF, Spark would look up each value first, to use it twice.
        yield f"IF(typed_{at} IS NULL{wanted}, coalesce({there}, false), false)"
    yield "canonical IS NOT NULL AND parsed IS NULL"


def misfits(columns: Columns) -> list[tuple[str, str]]:
    """For each column, the condition that the value of :func:`evaluated` rows goes to ``_rescued``.

    The last one is for the whole document.
    """
    names = [*columns, UNREADABLE] if columns else []
    return [(name, f"misfit_{at}") for at, name in enumerate(names)]


def rescued(columns: Columns) -> str:
    """SQL for ``_rescued`` of :func:`evaluated` rows."""
    if not columns:
        return f"CAST(NULL AS STRING) AS {RESCUED}"
    tests = misfits(columns)
    texts = [*(f"to_json({_found(each)})" for each in columns.values()), "canonical"]
    # A structure, because null fields are left out. To filter an array, Spark would leave the code
    # that it generates.
    fields = ", ".join(
        f"'{name}', IF({condition}, {each}, NULL)"
        for (name, condition), each in zip(tests, texts, strict=True)
    )
    some = " OR ".join(condition for _, condition in tests)
    text = f"to_json(named_struct({fields}), map('ignoreNullFields', 'true'))"
    return f"IF({some}, {text}, NULL) AS {RESCUED}"


def selected(columns: Columns) -> list[str]:
    """SQL for the typed columns of :func:`evaluated` rows under their names."""
    return [f"typed_{at} AS `{name}`" for at, name in enumerate(columns)]


def with_columns(rows: DataFrame, text: str, columns: Columns, keep: Sequence[str]) -> DataFrame:
    """The columns ``keep``, the typed ones, and ``_rescued``: a JSON object that maps a column's
    name to the value that did not fit, as canonical Extended JSON."""
    return evaluated(rows, text, columns).selectExpr(*keep, *selected(columns), rescued(columns))


def _parts(column: TypedColumn) -> list[str]:
    return str(column.path).split(".")


def _fields(column: TypedColumn) -> str:
    return ".".join(f"`{name}`" for name in _parts(column))


def _found(column: TypedColumn) -> str:
    """SQL for whatever is at the path of a column."""
    path = "".join(f'["{name}"]' for name in _parts(column))
    return f"variant_get(parsed, '${path}')"


_FORMS: Mapping[ColumnType, str] = {
    "string": "variant",
    "boolean": "variant",
    "long": "struct<`$numberInt`: string, `$numberLong`: string>",
    "double": "struct<`$numberDouble`: string, `$numberInt`: string, `$numberLong`: string>",
    "timestamp": "struct<`$date`: struct<`$numberLong`: string>>",
    "decimal": "struct<`$numberDecimal`: string>",
}
"""A canonical value as a type of Spark. All else becomes null there, but in a variant. That is
written as JSON, because any value would be cast to a string."""


def _string(json: str) -> str:
    """Only text with an escape is parsed. (To cast a variant, Spark makes an expression a row.)"""
    text = (
        f"IF(instr({json}, char(92)) = 0, btrim({json}, '\"'), CAST(parse_json({json}) AS STRING))"
    )
    return f"IF(startswith({json}, '\"'), {text}, NULL)"


def _boolean(json: str) -> str:
    return f"CASE {json} WHEN 'true' THEN true WHEN 'false' THEN false END"


def _long(found: str) -> str:
    texts = (f"{found}.`{name}`" for name in ("$numberInt", "$numberLong"))
    return f"coalesce({', '.join(f'try_cast({text} AS BIGINT)' for text in texts)})"


def _double(found: str) -> str:
    """Any double, and integers that a double holds exactly."""
    whole = f"try_cast({found}.`$numberLong` AS BIGINT)"
    number = f"CAST({whole} AS DOUBLE)"
    # A cast of 2 ** 63 gives the largest long, which would then seem equal.
    exact = f"{number} < 9223372036854775808D AND CAST({number} AS BIGINT) = {whole}"
    return (
        f"coalesce(try_cast({found}.`$numberDouble` AS DOUBLE), "
        f"try_cast({found}.`$numberInt` AS DOUBLE), IF({exact}, {number}, NULL))"
    )


def _timestamp(found: str) -> str:
    milliseconds = f"try_cast({found}.`$date`.`$numberLong` AS BIGINT)"
    fits = f"{milliseconds} BETWEEN {FIRST_YEAR} AND {LAST_YEAR}"
    return f"IF({fits}, timestamp_millis({milliseconds}), NULL)"


def _decimal(found: str) -> str:
    text = f"{found}.`$numberDecimal`"
    fits = _EXACT_DECIMAL.format(text=text)
    return f"IF({fits}, try_cast({text} AS DECIMAL(38, 10)), NULL)"


_TYPES: Mapping[ColumnType, Callable[[str], str]] = {
    "string": _string,
    "long": _long,
    "double": _double,
    "boolean": _boolean,
    "timestamp": _timestamp,
    "decimal": _decimal,
}
