"""The settings of the Spark job."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from tailrace.config.catalog import CatalogSettings, TablesAt
from tailrace.config.fields import Count, Flag, Port, Seconds, SecondsOrZero, Section, Text, like

ColumnType = Literal[
    "string", "long", "double", "boolean", "timestamp", "decimal", "objectId", "json"
]

AUTO: Literal["auto"] = "auto"
"""Instead of a type: the fields of documents become columns as they appear."""

REST = "*"
"""The name of all other fields of a collection, and of all other collections."""

OWN_COLUMNS = frozenset(
    {
        *("key", "document_key", "document", "json", "operation", "scope", "ordinal", "_rescued"),
        *("cluster_time", "cluster_seconds", "cluster_increment", "is_current", "ended_by"),
        *("valid_from", "valid_from_position", "valid_to", "valid_to_position"),
    }
)
"""The columns that every table or view has; a declared column must not have one of these names."""

_FORBIDDEN = " ,;{}()\n\t="
"""What a column's name must not contain in a table that every reader of Delta opens
(https://github.com/delta-io/delta/blob/master/PROTOCOL.md, "Column Mapping")."""


def _field_path(path: str) -> str:
    if not all(path.split(".")) or set(path) & set("\"'`\\") or not path.isprintable():
        raise ValueError("must be the path of a field, as in customer.name, without any quotes")
    return path


def _column_name(name: str) -> str:
    _field_path(name)
    if name.lower() in OWN_COLUMNS:
        raise ValueError(
            f"every table has a column of that name; give this one another: "
            f"NAME: {{path: {name}, type: …}}"
        )
    if forbidden := set(name) & set(_FORBIDDEN):
        raise ValueError(
            f"a column's name must not have {min(forbidden)!r}; give it a name: "
            f"NAME: {{path: '{name}', type: …}}"
        )
    return name


class TypedColumn(Section):
    """A declared column of a collection's tables."""

    type: Literal[ColumnType, "auto"]
    """The type of the column; `auto` only for the name `*`, all other top-level fields."""

    path: Annotated[Text, AfterValidator(_field_path)] | None = None
    """The path of the field; without it, the name of the column."""


def _long_form(value: Any) -> Any:
    """``long`` means ``{type: long}``. The message for another word says what is allowed."""
    if isinstance(value, dict | TypedColumn):
        return value
    known = get_args(ColumnType)
    if value not in (*known, AUTO):
        *most, last = known
        raise ValueError(f"must be {', '.join(most)} or {last}, not {str(value)[:60]!r}")
    return {"type": value}


def _distinct(columns: Mapping[str, TypedColumn]) -> Mapping[str, TypedColumn]:
    """The columns with their paths. No two may have one name, as Spark reads names, or one path."""
    names: dict[str, str] = {}
    paths: dict[str, str] = {}
    for name, column in columns.items():
        if (name == REST) != (column.type == AUTO):
            raise ValueError(f"{name!r}: auto is for '*' alone, all fields that are not declared")
        before = names.setdefault(name.lower(), name)
        if before != name:
            raise ValueError(f"{before!r} and {name!r} are one column to Spark: keep one of them")
        path = column.path or name
        before = paths.setdefault(path, name)
        if before != name:
            raise ValueError(f"{before!r} and {name!r} both read {path}: keep one of them")
    return {
        name: column.model_copy(update={"path": column.path or name})
        for name, column in columns.items()
    }


def _long_rest(value: Any) -> Any:
    """``auto`` means ``{"*": auto}``."""
    return {REST: AUTO} if value == AUTO else value


def _of_rest(
    declared: Mapping[str, Mapping[str, TypedColumn]],
) -> Mapping[str, Mapping[str, TypedColumn]]:
    if declared.get(REST, {}).keys() - {REST}:
        raise ValueError("'*': must be auto; declare columns by database.collection")
    return declared


Columns = Annotated[
    Mapping[
        Annotated[str, AfterValidator(_column_name)],
        Annotated[
            TypedColumn,
            BeforeValidator(_long_form, json_schema_input_type=ColumnType | TypedColumn),
        ],
    ],
    BeforeValidator(_long_rest),
    AfterValidator(_distinct),
]


def columns_of(given: Mapping[str, Any]) -> Mapping[str, TypedColumn]:
    """Declared columns from their form in a file. Raises ``ValueError`` with the first mistake."""
    try:
        columns = TypeAdapter[Mapping[str, TypedColumn]](Columns).validate_python(dict(given))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"] if part != "[key]")
        raise ValueError(f"{where}: {first['msg'].removeprefix('Value error, ')}") from None
    if REST in columns:
        raise ValueError(f"{REST!r}: only pipeline.columns may have it")
    return columns


def column_problem(name: str) -> str | None:
    """Why a field cannot be a column of its name."""
    try:
        columns_of({name: "json"})
    except ValueError as error:
        return str(error)
    return None


def is_field(name: str) -> bool:
    """Whether the path of a top-level field can be its name."""
    try:
        return "." not in _field_path(name)
    except ValueError:
        return False


class PipelineHttpSettings(Section):
    """Metrics, health and status of a pipeline that keeps running. Nothing can be changed there."""

    host: Text = "127.0.0.1"
    """The address to listen on; `0.0.0.0` in a container. Everybody who can reach it may read."""

    port: Port = 9465
    """The port. 0 takes any free one."""


class PipelineSettings(Section):
    """The Spark job that turns the segments of a `parquet` handler into tables (`tailrace pipeline
    --config FILE`; the daemon uses only `tables`, for `tailrace why` and `verify`). `--lake` and
    `--tables` override it."""

    lake: Text | None = None
    """The lake: `path` of the `parquet` handler."""

    format: Literal["delta", "iceberg"] = "delta"
    """The format of the tables. `iceberg` needs `catalog` and `warehouse`, and the extra
    `iceberg`."""

    tables: Text | None = None
    """Where the Delta tables are: a directory, or a URI of an object store. With `format: iceberg`
    it has no effect."""

    catalog: CatalogSettings = Field(default_factory=dict)
    """The catalog of the Iceberg tables, by pyiceberg's settings: `type` (`sql`, `rest` or `glue`),
    `uri`, credentials. `name` is the name of the catalog, `default` without it."""

    warehouse: Text | None = None
    """Where the files of the Iceberg tables are: a directory, or a URI of an object store."""

    namespace: Annotated[
        str, like(r"\w+(\.\w+)*", "must be letters, digits and _, as in tailrace or lake.shop")
    ] = "tailrace"
    """The namespace of `changes` and `quality` in the catalog. The names of those of `current` and
    `history` begin with it: `tailrace_current`."""

    master: Text | None = None
    """The master of the Spark cluster. Without it, Spark runs on this machine with all its
    cores."""

    driver_memory: Text = "2g"
    """The memory of Spark's driver process, which does all the work if there is no cluster. Raise
    it for large collections."""

    interval_seconds: Seconds = 10.0
    """How often the job looks for new segments."""

    batch_events: Count = 2_000_000
    """The approximate number of events in a batch. Lower it on a machine with little memory."""

    publish_ratio: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.1
    """`current` and `history` of a collection are published when this many changes wait, as a share
    of its documents. 0.1 keeps the cost of a change independent of the table's size; 0 publishes
    after every batch."""

    publish_seconds: Seconds = 15.0
    """At the first look after this time, all tables below 16 MB are published, so that a change is
    in `current` within half a minute of its being landed. Larger ones are published then, too,
    unless that took longer than a tenth of the time since."""

    publish_at_end: Flag = True
    """Whether a run publishes everything before it ends. Set it to `false` if you run `--once`
    every few minutes on large tables: each run would rewrite a large part of them. `publish_ratio`
    and `publish_seconds` then decide."""

    parallel_collections: Count = 2
    """How many collections are published concurrently."""

    history: Flag = True
    """Whether the table `history` is kept."""

    http: PipelineHttpSettings = Field(default_factory=PipelineHttpSettings)

    vacuum_hours: SecondsOrZero = 168.0
    """How long files of older versions of a table are kept. It must be longer than any query or
    batch takes."""

    segment_retention_hours: Seconds | None = None
    """How long segments are kept after they are in the tables. Without it they are kept forever, so
    that tables can be rebuilt."""

    spark: Mapping[str, str] = Field(default_factory=dict)
    """Further Spark settings, under Spark's own names. What `spark.driver.extraJavaOptions` has
    comes after the job's own options for Java."""

    columns: Annotated[
        Mapping[
            Annotated[str, like(r"\*|[^.]+\.(.|\n)+", "must be written database.collection")],
            Columns,
        ],
        BeforeValidator(
            _long_rest,
            json_schema_input_type=Mapping[str, Columns | Literal["auto"]] | Literal["auto"],
        ),
        AfterValidator(_of_rest),
    ] = Field(default_factory=dict)
    """Typed columns of `current` and `history`. For each `database.collection`: the path of a field
    and its type (`string`, `long`, `double`, `boolean`, `timestamp`, `decimal`, `objectId`,
    `json`), or a name for the column with both: `customer: {path: customer.name, type: string}`.
    Values that do not fit go to the column `_rescued`, and `quality` counts them. `tailrace columns
    suggest` proposes some. `auto`, here or for a collection, makes columns of the top-level fields
    as they appear; `"*": auto` does so for all other collections, or all other fields."""

    columns_limit: Count = 50
    """How many columns of a collection `auto` makes. Later fields are in `document` only."""

    @model_validator(mode="after")
    def _has_what_its_format_needs(self) -> Self:
        iceberg = {"catalog": self.catalog, "warehouse": self.warehouse}
        if self.format == "delta":
            for key in (key for key, value in iceberg.items() if value):
                raise ValueError(f"{key} is of Iceberg tables: remove it, or set format: iceberg")
            return self
        for key in (key for key, value in iceberg.items() if not value):
            raise ValueError(f"format iceberg needs {key}")
        return self

    def tables_at(self, where: str | None = None) -> TablesAt | None:
        """Where the tables are; ``None`` if nothing says it. ``where`` overrides the directory or
        the warehouse."""
        if self.format == "iceberg":
            return TablesAt(where or self.warehouse or "", self.catalog, self.namespace)
        where = where or self.tables
        return TablesAt(where) if where else None
