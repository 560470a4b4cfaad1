"""Declared columns: typed fields of documents, and the values that do not fit their type.

A value is in its column or, unchanged, in ``_rescued``. A value does not fit if its type would
round or truncate it. Everything is SQL over the document's canonical text, parsed once as VARIANT.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tailrace.config.pipeline import TypedColumn
from tailrace.errors import PipelineRefused
from tailrace.pipeline.column_values import FORMS, VALUES
from tailrace.pipeline.table_schema import StoredType, TableField, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class RescuedField:
    """A field that has no column, and is in ``_rescued`` in any case."""

    path: str
    type: Literal["rescued"] = "rescued"


Columns = Mapping[str, TypedColumn | RescuedField]
"""Columns by name."""

COLUMNS = "tailrace.columns"
"""The log's property that declares the columns of each table."""

AUTO_COLUMNS = "tailrace.auto_columns"
"""The log's property with the columns that tables got as their fields appeared
(:mod:`tailrace.pipeline.auto_columns`)."""

RESCUED = "_rescued"

UNREADABLE = "document"
"""The key in ``_rescued`` of a document that no VARIANT can hold: it has a field twice."""

_PATH = "tailrace.path"
"""The key in a stored column's metadata of the path that it holds."""

_TYPE = "tailrace.type"
"""The key there of the type, if it is stored as text and is not ``string``."""

_STORED: Mapping[str, str] = {
    "string": StoredType.STRING,
    "long": StoredType.LONG,
    "double": StoredType.DOUBLE,
    "boolean": StoredType.BOOLEAN,
    "timestamp": StoredType.TIMESTAMP,
    "decimal": StoredType.DECIMAL,
}
_AS_TEXT: Sequence[str] = ("objectId", "json")

_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"


def schema_with(schema: TableSchema, columns: Columns) -> TableSchema:
    """A table's own schema, followed by the typed columns."""
    return TableSchema.of([*schema, *stored_fields(columns)])


def stored_fields(columns: Columns) -> list[TableField]:
    """The fields of a table that hold these columns."""
    return [
        _stored_field(name, column)
        for name, column in columns.items()
        if isinstance(column, TypedColumn)
    ]


def _stored_field(name: str, column: TypedColumn) -> TableField:
    if column.type in _AS_TEXT:
        metadata = {_PATH: column.path, _TYPE: column.type}
        return TableField(name, StoredType.STRING, metadata)
    return TableField(name, _STORED[column.type], {_PATH: column.path})


def stored_columns(schema: TableSchema) -> Columns:
    """The typed columns of a table as it is stored."""
    kinds = {stored: kind for kind, stored in _STORED.items()}
    return {
        field.name: TypedColumn(
            type=field.metadata.get(_TYPE, kinds[field.type]), path=field.metadata[_PATH]
        )
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


def _described(column: TypedColumn | RescuedField) -> str:
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
    values_of = {
        name: f"tree_{at}.{_fields(column)}"
        for at, tree in enumerate(trees)
        for name, column in tree.items()
    }
    variants = [name for name, column in columns.items() if FORMS[column.type] == "variant"]
    texts = {name: f"json_{at}" for at, name in enumerate(variants)}
    rows = rows.selectExpr("*", *(f"to_json({values_of[name]}) AS {texts[name]}" for name in texts))
    values_of |= texts
    values = {name: VALUES[column.type](values_of[name]) for name, column in columns.items()}
    if where is not None:
        values = {name: f"IF({where[name]}, {value}, NULL)" for name, value in values.items()}
    typed = (f"{values[name]} AS typed_{at}" for at, name in enumerate(columns))
    rows = rows.selectExpr("*", *typed)
    flags = enumerate(_misfits(columns, where))
    return rows.selectExpr("*", *(f"{test} AS misfit_{at}" for at, test in flags))


def _trees(columns: Columns) -> list[dict[str, TypedColumn | RescuedField]]:
    """The columns in groups, each of which one cast to a structure takes from a document: no path
    leads through another one, and no two differ only in the case of a name."""
    trees: list[dict[str, TypedColumn | RescuedField]] = []
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
        inside[name] = FORMS[column.type]

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
    keys = [_key(name, columns) for name in columns]
    names = [*keys, UNREADABLE] if columns else []
    return [(name, f"misfit_{at}") for at, name in enumerate(names)]


def _key(name: str, columns: Columns) -> str:
    """The key of a column in ``_rescued``. A field without a column has its name, if that is free,
    or else ``$.`` before it."""
    column = columns[name]
    is_free = isinstance(column, RescuedField) and column.path not in (*columns, UNREADABLE)
    return str(column.path) if is_free else name


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
    return [
        f"typed_{at} AS `{name}`"
        for at, (name, column) in enumerate(columns.items())
        if isinstance(column, TypedColumn)
    ]


def with_columns(rows: DataFrame, text: str, columns: Columns, keep: Sequence[str]) -> DataFrame:
    """The columns ``keep``, the typed ones, and ``_rescued``: a JSON object that maps a column's
    name to the value that did not fit, as canonical Extended JSON."""
    return evaluated(rows, text, columns).selectExpr(*keep, *selected(columns), rescued(columns))


def _parts(column: TypedColumn | RescuedField) -> list[str]:
    return str(column.path).split(".")


def _fields(column: TypedColumn | RescuedField) -> str:
    return ".".join(f"`{name}`" for name in _parts(column))


def _found(column: TypedColumn | RescuedField) -> str:
    """SQL for whatever is at the path of a column."""
    path = "".join(f'["{name}"]' for name in _parts(column))
    return f"variant_get(parsed, '${path}')"
