"""A snapshot with the files that a commit adds and removes.

pyiceberg 0.12 has no compaction, and its commit that adds and removes files keeps the manifests of
removed files for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _ManifestMergeManager, _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT

_MERGED_BYTES = 8 * 2**20
_MANIFESTS = 20
"""So many manifests are merged: a table is opened by reading all of them."""


class NextSnapshot(_OverwriteFiles):
    """Removes exactly the files that it is told; a compaction changes no data."""

    def __init__(
        self,
        transaction: Transaction,
        properties: Mapping[str, str],
        adds: Iterable[DataFile],
        removes: Iterable[DataFile],
        *,
        compaction: bool = False,
    ) -> None:
        gone = list(removes)
        super().__init__(
            Operation.OVERWRITE if gone else Operation.APPEND,
            transaction,
            transaction._table.io,
            snapshot_properties={**properties},
        )
        self._is_compaction = compaction
        for file in adds:
            self.append_data_file(file)
        for file in gone:
            self.delete_data_file(file)

    def _build_manifest_evaluator(self, spec_id: int) -> Callable[[ManifestFile], bool]:
        # pyiceberg's threads share an evaluator, which keeps the partitions of one manifest, so
        # that a thread may judge its own manifest by another one's: each gets an evaluator.
        build = super()._build_manifest_evaluator
        return lambda manifest: build(spec_id)(manifest)

    def _existing_manifests(self) -> list[ManifestFile]:
        found = super()._existing_manifests()
        return [each for each in found if each.has_added_files() or each.has_existing_files()]

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        return _ManifestMergeManager(
            target_size_bytes=_MERGED_BYTES,
            min_count_to_merge=_MANIFESTS,
            merge_enabled=True,
            snapshot_producer=self,
        ).merge_manifests(manifests)

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        summary = super()._summary(snapshot_properties)
        if not self._is_compaction:
            return summary
        # Readers of new rows pass over it: https://iceberg.apache.org/spec/#snapshots
        return Summary(operation=Operation.REPLACE, **summary.additional_properties)
