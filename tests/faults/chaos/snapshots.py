"""Finds everything that is wrong with the rows of snapshots among the changes.

- A row is never older than its handler's state of the document, and never restores a deleted one.
- No change that a row contains comes after that row, unless the watcher restarted.
- A row comes again in its snapshot only if the process that had it was killed, or its watcher
  restarted, or the handler stores and then fails, as those that own their position do.
- Every document that nobody changes is in every completed snapshot.
"""

from collections.abc import Collection, Iterator, Sequence

from tests.faults.chaos.account import Account, Kind
from tests.faults.chaos.history import Arrival, Process, Recipient


def examine_rows(
    unchanged: Collection[int],
    processes: Sequence[Process],
    recipients: Sequence[Recipient],
    account: Account,
) -> int:
    """Adds every error to the account; returns the number of rows."""
    followed = [_Followed(each, unchanged, account) for each in recipients]
    for number, process in enumerate(processes):
        for each in followed:
            each.take(number, process)
    for each in followed:
        account.add(Kind.LOST, each.lost())
    return sum(len(each.rows) for each in followed)


class _Followed:
    """One handler, followed through all processes."""

    def __init__(self, recipient: Recipient, unchanged: Collection[int], account: Account) -> None:
        self._name, self._owns = recipient.name, recipient.owns
        self._unchanged = unchanged
        self._account = account
        self._number_of: dict[str, int] = {}  # by token: the change's number in its document
        self._latest: dict[int | None, int] = {}
        self._deleted: set[int | None] = set()
        self._ended: set[str] = set()
        self.rows: dict[tuple[str, int | None], tuple[int, Process]] = {}
        """By snapshot and document: the last process that had it."""

    def take(self, number: int, process: Process) -> None:
        """Checks what one process handed over."""
        read: dict[int | None, int] = {}
        for arrival in process.everything.get(self._name, ()):
            if not arrival.of_snapshot:
                self._change(number, arrival, read if process.starts == 1 else {})
            elif arrival.operation == "read":
                self._row(number, arrival, process)
                read[arrival.document] = arrival.number or 0
            elif arrival.operation == "snapshotEnd":
                self._ended.add(arrival.token)
            elif arrival.operation != "snapshotBegin":
                self._complain(Kind.CONTENT, number, f"{arrival.operation} of {arrival.document}")

    def lost(self) -> Iterator[str]:
        """Unchanged documents that are missing from a completed snapshot."""
        for snapshot in sorted(self._ended):
            missing = [each for each in self._unchanged if (snapshot, each) not in self.rows]
            if missing:
                yield f"{self._name}: {len(missing)} rows of snapshot {snapshot} never arrived"

    def _change(self, number: int, change: Arrival, read: dict[int | None, int]) -> None:
        document = change.document
        if change.token not in self._number_of:
            latest = self._number_of[change.token] = self._latest.get(document, 0) + 1
            if change.number is not None:
                latest = self._number_of[change.token] = change.number
            self._latest[document] = latest
            self._deleted.discard(document)
            if change.operation == "delete":
                self._deleted.add(document)
        if self._number_of[change.token] <= read.get(document, -1):
            self._complain(Kind.ORDER, number, f"a change of {document} came behind its row")

    def _row(self, number: int, row: Arrival, process: Process) -> None:
        document, latest = row.document, self._latest.get(row.document, 0)
        held = row.number or 0
        if held < latest or (held == latest and document in self._deleted):
            self._complain(Kind.ORDER, number, f"row {held} of {document} behind change {latest}")
        had = self.rows.get((row.token, document))
        if (
            had is not None
            and not self._owns
            and (had[1].clean or had[0] == number)
            and had[1].starts == 1
        ):
            self._complain(Kind.AGAIN, number, f"the row of {document} came again")
        self.rows[row.token, document] = number, process

    def _complain(self, kind: Kind, number: int, text: str) -> None:
        self._account.add(kind, [f"{self._name}: {text}"], number)
