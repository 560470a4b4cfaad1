"""Verifications in the SQLite store: a row for the last one of each handler."""

import json
from collections.abc import Sequence

from anyio import to_thread

from tailrace.model.verification import Verification
from tailrace.stores.records import read_json, readable, verification_fenced
from tailrace.stores.sqlite_file import SqliteFile

# As a blob: text that is not UTF-8 must fail where the error can name its record.
_LOAD = """
SELECT CAST(document AS BLOB) FROM verifications WHERE scope = ? ORDER BY handler
"""
_SAVE = """
INSERT INTO verifications (scope, handler, epoch, document) VALUES (?, ?, ?, ?)
ON CONFLICT (scope, handler) DO UPDATE SET epoch = excluded.epoch, document = excluded.document
WHERE excluded.epoch >= verifications.epoch
"""


class SqliteVerifications:
    """A :class:`tailrace.verify.ports.VerificationStore`."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    async def load(self, scope: str) -> Sequence[Verification]:
        where = f", scope {scope!r}"
        rows = (await self._file.run(_LOAD, (scope,), where)).rows
        of = {"scope": scope, "where": f"{self._file.path}{where}"}
        return await readable(lambda row: read_json(Verification, row[0], **of), rows)

    async def save(self, verification: Verification) -> None:
        scope, where = verification.scope, f", scope {verification.scope!r}"
        document = await to_thread.run_sync(lambda: json.dumps(verification.to_document()))
        values = (scope, verification.handler, verification.epoch, document)
        if (await self._file.run(_SAVE, values, where)).changed == 0:
            raise verification_fenced(verification, where=str(self._file.path))
