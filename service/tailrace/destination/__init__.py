"""The kit for destinations: what those of Tailrace are made of, and those of other packages.

A destination is a class with ``write(batch)``: docs/handlers.md shows a complete one in a package
of its own. The names of this module are public; its submodules have more of the same kind, for
what only some destinations need.

- What the methods get: :class:`Batch`, :class:`ScopeContext`, :class:`Opening`,
  :class:`ProbeContext`.
- A type: :func:`destination_type` makes one of a class and its settings; :class:`HandlerType` is
  the row of the table that it makes.
- Settings derive from :class:`BatchHandlerSettings`; from :class:`MessageHandlerSettings` if a
  message is sent for each event, and from :class:`CommitHandlerSettings` for a late commit.
  ``tailrace.destination.settings`` has types for their fields.
- Secrets: fields of :data:`SecretText` and :data:`SecretUri` are a :class:`Secret`, whose file is
  read again at each connection.
- Names: a field of :data:`NameTemplate` is a :class:`Template` with ``{database}``, …;
  :func:`require_apart` refuses two collections with one target, :func:`namespace_of` says
  where an event without a collection belongs.
- Messages and fields: :class:`MessageMaker` makes messages with the envelope and the fields of the
  settings, :func:`converted` runs that in a thread if it takes long; a destination without messages
  has the :class:`FieldMapping` of :class:`FieldSettings`.
- DDL and snapshots: :class:`Rename`, :class:`SnapshotBarrier`, :func:`ddl_mark`,
  :func:`is_before`.
- A comparison with the source: ``comparison(scope)`` opens a :class:`Comparison`, which has
  :data:`Row`, :class:`HeldRows`, :class:`HeldKeys` of :class:`HeldKey`, and :class:`DocumentId`,
  :class:`ReadDocuments` if it compares by itself, and :data:`ROWS_BYTES`.
- Files: :func:`probe_directory` for a probe; :func:`write_all`, :func:`sync_directory` and the mode
  :data:`PRIVATE` for what must survive a power cut.
- Below a class: :class:`Handler`, which the engine calls as :class:`PerEvent` or
  :class:`PerBatch`, with a :class:`Commit`, an :class:`OwnPosition`, a :class:`RunIdentity`.

A call may raise ``tailrace.Unavailable``, ``Refused``, ``Fenced`` and so on. What is wrong with the
configuration is a :class:`ConfigurationError` of one :class:`Problem` or several, each with a path.
"""

from tailrace.destination.batch import Batch, ScopeContext
from tailrace.destination.class_type import destination_type
from tailrace.destination.ddl import Rename, ddl_mark, is_before
from tailrace.destination.handler_type import HandlerType, Opening, ProbeContext
from tailrace.destination.messages import MessageMaker, converted
from tailrace.destination.names import (
    NameTemplate,
    Template,
    followed_collections,
    namespace_of,
    require_apart,
)
from tailrace.destination.secret import Secret, SecretText, SecretUri
from tailrace.destination.settings import (
    AnyHandlerSettings,
    BatchHandlerSettings,
    CommitHandlerSettings,
    FieldSettings,
    HandlerSettings,
    MessageHandlerSettings,
)
from tailrace.durable_files import PRIVATE, probe_directory, sync_directory, write_all
from tailrace.engine import (
    ROWS_BYTES,
    Commit,
    Comparison,
    Handler,
    HeldKey,
    HeldKeys,
    HeldRows,
    OwnPosition,
    PerBatch,
    PerEvent,
    ReadDocuments,
    Row,
    RunIdentity,
    raw_documents,
    raw_list,
)
from tailrace.errors import ConfigurationError, Problem
from tailrace.event import Namespace
from tailrace.event.field_mapping import FieldMapping
from tailrace.event.snapshot_barrier import SnapshotBarrier
from tailrace.model.snapshot import DocumentId

__all__ = [
    "PRIVATE",
    "ROWS_BYTES",
    "AnyHandlerSettings",
    "Batch",
    "BatchHandlerSettings",
    "Commit",
    "CommitHandlerSettings",
    "Comparison",
    "ConfigurationError",
    "DocumentId",
    "FieldMapping",
    "FieldSettings",
    "Handler",
    "HandlerSettings",
    "HandlerType",
    "HeldKey",
    "HeldKeys",
    "HeldRows",
    "MessageHandlerSettings",
    "MessageMaker",
    "NameTemplate",
    "Namespace",
    "Opening",
    "OwnPosition",
    "PerBatch",
    "PerEvent",
    "ProbeContext",
    "Problem",
    "ReadDocuments",
    "Rename",
    "Row",
    "RunIdentity",
    "ScopeContext",
    "Secret",
    "SecretText",
    "SecretUri",
    "SnapshotBarrier",
    "Template",
    "converted",
    "ddl_mark",
    "destination_type",
    "followed_collections",
    "is_before",
    "namespace_of",
    "probe_directory",
    "raw_documents",
    "raw_list",
    "require_apart",
    "sync_directory",
    "write_all",
]
