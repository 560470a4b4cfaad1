"""Chooses between the two forms of the destination."""

from tailrace.destination import Opening
from tailrace.destinations.postgresql import PostgreSQLSettings
from tailrace.destinations.postgresql.form import StorageForm
from tailrace.destinations.postgresql.log_form import LogForm
from tailrace.destinations.postgresql.rows import RowMaker
from tailrace.destinations.postgresql.table_form import TableForm
from tailrace.destinations.postgresql.tables import Registry
from tailrace.destinations.postgresql.values import Values


def form_of(opening: Opening, settings: PostgreSQLSettings) -> StorageForm:
    """Tables, or a log, of the scope."""
    schema, fields = settings.db_schema, settings.fields.mapping()
    create, replace_nul = settings.create, settings.nul == "replace"
    if settings.table is None:
        name = settings.log or ""
        scope = opening.scope.name
        return LogForm(schema, name, scope, fields, create=create, replace_nul=replace_nul)
    values = Values(settings.declared, replace_nul=replace_nul)
    maker = RowMaker(values, fields, replace_nul, settings.on_misfit == "refuse")
    return TableForm(
        schema,
        settings.table,
        maker,
        Registry(schema, opening.name, opening.scope.name),
        opening.scope,
        policy=settings.ddl,
        soft=settings.soft_delete,
        create=create,
        automatic=settings.columns_limit if settings.adds_columns else 0,
    )
