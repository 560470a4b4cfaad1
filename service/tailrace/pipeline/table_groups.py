"""Which tables share a Spark job: small ones.

A job costs about a second however little it computes. Where both tables of a collection begin at
the same state, the job of ``history`` serves ``current``: its open versions are the documents.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tailrace.config.pipeline import TypedColumn
from tailrace.pipeline.log_snapshot import CURRENT_STATE, HISTORY_STATE, LogSnapshot
from tailrace.pipeline.publish import Publication, TableInput, known_files
from tailrace.pipeline.tables import DataFile
from tailrace.pipeline.typed_columns import RescuedField

TABLE_BYTES = 2 * 2**20
"""A table whose files and changes have fewer bytes, and fewer than this many rows, shares a job."""

TABLE_ROWS = 50_000

GROUP_BYTES = 16 * 2**20
"""How many bytes and rows share a job: this process has them in memory."""

GROUP_ROWS = 200_000

_GROUP_COLUMNS = 100
"""How many typed columns share a job: Spark computes those of all tables for each row."""

FEWEST = 2
"""A group of fewer collections is not one."""


@dataclass(frozen=True, slots=True)
class SharedPublication:
    """A publication, and the one of ``current`` that the same versions make."""

    work: Publication
    current: Publication | None = None

    @property
    def works(self) -> list[Publication]:
        return [self.work] if self.current is None else [self.current, self.work]


@dataclass(slots=True)
class _Group:
    """Publications of one kind of table that can share a job: their tables agree on the state of
    those that they share, which they do not after a crash, and on the columns of one name."""

    shared: list[SharedPublication] = field(default_factory=list)
    bytes: int = 0
    rows: int = 0
    sources: dict[str, TableInput] = field(default_factory=dict)
    columns: dict[str, TypedColumn | RescuedField] = field(default_factory=dict)

    def accepts(self, work: Publication) -> bool:
        return all(
            _state(self.sources.get(each.name, each)) == _state(each) for each in work.sources
        ) and all(self.columns.get(name, each) == each for name, each in work.columns.items())

    def has_room(self, work: Publication, size: int, rows: int) -> bool:
        columns = len(self.columns.keys() | work.columns.keys())
        return not self.shared or (
            self.bytes + size <= GROUP_BYTES
            and self.rows + rows <= GROUP_ROWS
            and columns <= _GROUP_COLUMNS
        )

    def add(self, shared: SharedPublication, size: int, rows: int) -> None:
        work = shared.work
        self.shared.append(shared)
        self.bytes += size
        self.rows += rows
        self.sources |= {each.name: each for each in work.sources}
        self.columns |= work.columns


def _state(source: TableInput) -> tuple[int, Mapping[str, int]]:
    return source.snapshot.version, source.through


def grouped(
    works: Sequence[Publication], log_snapshot: LogSnapshot
) -> tuple[list[list[SharedPublication]], list[Publication]]:
    """The publications that share a job, in groups, and those that do not."""
    groups: dict[tuple[str, bool], _Group] = {}
    full: list[_Group] = []
    alone: list[Publication] = []
    for shared in _in_pairs(works):
        work = shared.work
        read = [*events_of(work, log_snapshot), *(each for _, each in open_files([work]))]
        size, rows = sum(each.size for each in read), sum(each.rows for each in read)
        is_small = size < TABLE_BYTES and rows < TABLE_ROWS
        key = work.kind.name, work.is_partial
        group = groups.setdefault(key, _Group())
        if work.rebuild or not is_small or not _is_plain(work) or not group.accepts(work):
            alone += shared.works
            continue
        if not group.has_room(work, size, rows):
            full.append(group)
            group = groups[key] = _Group()
        group.add(shared, size, rows)
    of_groups = [group.shared for group in (*full, *groups.values())]
    few = [group for group in of_groups if len(group) < FEWEST]
    alone += [work for group in few for shared in group for work in shared.works]
    return [group for group in of_groups if len(group) >= FEWEST], alone


def _in_pairs(works: Sequence[Publication]) -> list[SharedPublication]:
    """Those of ``history``, with the ones of ``current`` that begin at the same state; and the
    others."""
    current = {work.target.name: work for work in works if work.kind is CURRENT_STATE}
    pairs = []
    for work in works:
        other = current.get(work.target.name)
        if (
            work.kind is HISTORY_STATE
            and other is not None
            and _beginning(work) == _beginning(other)
        ):
            pairs.append(SharedPublication(work, current.pop(work.target.name)))
        elif work.kind is not CURRENT_STATE:
            pairs.append(SharedPublication(work))
    return [*map(SharedPublication, current.values()), *pairs]


def _beginning(work: Publication) -> tuple[Any, ...]:
    """What two kinds of table have in common if their open versions are the same."""
    through = [(source.name, source.through) for source in work.sources]
    return through, work.statements, work.columns


def _is_plain(work: Publication) -> bool:
    """Whether the names of collections can be read back from those of their tables: not if one was
    shortened, or has half of a surrogate pair, which Spark's text cannot have."""
    return all("!!" not in source.name and "!ed" not in source.name for source in work.sources)


def events_of(work: Publication, log_snapshot: LogSnapshot) -> list[DataFile]:
    return [
        each
        for source in work.sources
        for each in [*source.news, *known_files(work, source, log_snapshot)]
    ]


def open_files(works: Sequence[Publication]) -> list[tuple[str, DataFile]]:
    """The files with the open versions of tables and their sources, with the tables' names."""
    sources = {source.name: source for work in works for source in work.sources}
    return [
        (source.name, each)
        for source in sources.values()
        for each in works[0].kind.open_files(source.snapshot)
    ]
