"""The type ``postgresql``. psycopg is an extra, imported when a handler of this type is used."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from tailrace.destination import (
    BatchHandlerSettings,
    NameTemplate,
    Opening,
    SecretUri,
    destination_type,
    require_apart,
)
from tailrace.destination.settings import Count, Flag, Text, like
from tailrace.destinations.postgresql.column_types import AUTO, ColumnType, column_name
from tailrace.destinations.postgresql.names import shared, table_name
from tailrace.errors import ConfigurationError, Problem, Unavailable, how_to_install

if TYPE_CHECKING:
    from tailrace.destinations.postgresql.destination import PostgreSQL

Path = Annotated[
    str,
    like(
        r"[^.\0$][^.\0]*(\.[^.\0$][^.\0]*)*",
        "must be the path of a field, as in total or customer.name",
    ),
]


_MOST_COLUMNS = 1_000
"""Of one table; PostgreSQL has at most 1,600, and fewer if their values are wide.

https://www.postgresql.org/docs/current/limits.html
"""
REST = "*"
"""All fields that are not declared."""


def _long_rest(value: Any) -> Any:
    """``auto`` means ``{"*": auto}``."""
    return {REST: AUTO} if value == AUTO else value


class PostgreSQLSettings(BatchHandlerSettings):
    """Keeps a table per collection in PostgreSQL, or one log table, with each change applied once.
    Needs the extra `postgresql`."""

    type: Literal["postgresql"]
    """Selects this handler."""

    dsn: SecretUri
    """The connection string: `postgresql://user@host/database`, or `{file: PATH}`, a file with it,
    which is read again at each connection."""

    db_schema: Text = Field("public", alias="schema")
    """The schema of all tables. It must exist."""

    table: NameTemplate | None = None
    """The name of a collection's table, such as `{collection}` or `{database}_{collection}`.
    Either this or `log`."""

    log: Text | None = None
    """The name of one table that gets a row for each event, and is never updated."""

    columns: Annotated[
        Mapping[Path, ColumnType],
        BeforeValidator(
            _long_rest, json_schema_input_type=Mapping[Path, ColumnType] | Literal["auto"]
        ),
    ] = Field(default_factory=dict)
    """Columns beside `document`: the path of a field and the type of its column, such as
    `total: numeric` or `customer.name: text` (the column `customer_name`). Of `fields`, only `hash`
    and `mask` apply to them. `auto`, or `"*": auto` beside declared ones, makes columns of the
    top-level fields of `document` as they appear."""

    columns_limit: Count = 50
    """How many columns of a table `auto` makes. Later fields are in `document` only."""

    on_misfit: Literal["null", "refuse"] = "null"
    """What to do with a value that does not fit the type of its column: store NULL and count it, or
    refuse the event."""

    nul: Literal["refuse", "replace"] = "refuse"
    """What to do with NUL characters, which PostgreSQL cannot store: refuse the event, or store
    U+FFFD for each."""

    ddl: Literal["follow", "keep", "refuse"] = "follow"
    """What to do when a collection is dropped or renamed: apply it to the rows of its table, keep
    them, or stop."""

    soft_delete: Flag = False
    """Whether a deleted document keeps its row, with the time in the column `deleted_at`."""

    create: Flag = True
    """Whether missing tables are created."""

    maps_fields: ClassVar[bool] = True

    @property
    def needs_documents(self) -> bool:
        """A table needs whole documents; the log takes events as they are."""
        return self.table is not None or super().needs_documents

    @property
    def declared(self) -> Mapping[str, str]:
        """The types of columns by the paths of their fields."""
        return {path: kind for path, kind in self.columns.items() if path != REST}

    @property
    def adds_columns(self) -> bool:
        """Whether further fields become columns."""
        return REST in self.columns

    @model_validator(mode="after")
    def _require_one_form(self) -> Self:
        if (self.table is None) == (self.log is None):
            raise ValueError(
                'needs either table (such as "{collection}") or log (the name of a table)'
            )
        if self.log is not None and self.columns:
            raise ValueError("columns belong to a table; a log has none")
        if self.log is not None and self.soft_delete:
            raise ValueError("soft_delete belongs to a table; a log has every delete")
        if self.table is not None and "{prefix}" in self.table.text:
            raise ValueError("table may hold {database}, {collection} and {scope}, not {prefix}")
        if self.columns_limit > _MOST_COLUMNS:
            raise ValueError(f"columns_limit can be at most {_MOST_COLUMNS}")
        for path, kind in self.columns.items():
            if (path == REST) != (kind == AUTO):
                raise ValueError(f"columns: {path}: auto is for '*' alone, all other fields")
        names: dict[str, str] = {}
        for path in self.declared:
            name = column_name(path)
            if name in names:
                raise ValueError(
                    f"columns {names[name]} and {path} would both be the column {name!r}"
                )
            names[name] = path
        return self


def _check(name: str, settings: PostgreSQLSettings) -> None:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        conninfo_to_dict(settings.dsn.read())
    except Unavailable:
        pass  # its file is being replaced
    except psycopg.Error:
        message = "is not a connection string of PostgreSQL, as in postgresql://user@host/database"
        raise ConfigurationError(Problem(f"handlers.{name}.dsn", message)) from None


def postgresql(opening: Opening, settings: PostgreSQLSettings) -> "PostgreSQL":
    """The destination of a handler. Raises :class:`ConfigurationError` for names that collide."""
    from tailrace.destinations.postgresql.destination import PostgreSQL

    if settings.table is not None:
        name_of = partial(table_name, settings.table)
        require_apart(f"handlers.{opening.name}.table", opening.follows, name_of, shared)
    return PostgreSQL(opening, settings)


POSTGRESQL = destination_type(
    PostgreSQLSettings,
    postgresql,
    _check,
    needs=("psycopg",),
    install=how_to_install("postgresql"),
    is_comparable=lambda settings: settings.table is not None,
)
