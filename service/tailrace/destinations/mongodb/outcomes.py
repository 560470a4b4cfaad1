"""What an error of the server or of the driver means: an outage, a refusal, or an attempt.

Errors are told apart by class, label and code, never by text. The codes are those of
https://github.com/mongodb/mongo/blob/master/src/mongo/base/error_codes.yml
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pymongo.errors import (
    ConnectionFailure,
    ExecutionTimeout,
    OperationFailure,
    PyMongoError,
    WTimeoutError,
)

from tailrace.errors import BatchTooLarge, Refused, Unavailable

DUPLICATE_KEYS = frozenset({11000, 11001})
UNAUTHORIZED = 13
NAMESPACE_NOT_FOUND = 26
NAMESPACE_EXISTS = 48
INVALID_NAMESPACE = 73
NO_SUCH_TRANSACTION = 251
NOT_IN_TRANSACTION = 263  # OperationNotSupportedInTransaction
TOO_LARGE = 10334  # BSONObjectTooLarge

OUTAGES = {
    6: "",  # HostUnreachable
    7: "",  # HostNotFound
    11: "check the user of uri",  # UserNotFound
    UNAUTHORIZED: "grant the user the role readWrite on the databases",
    18: "check name, password and authSource of uri",  # AuthenticationFailed
    24: "",  # LockTimeout
    46: "",  # LockBusy
    63: "",  # StaleShardVersion
    64: "",  # WriteConcernFailed: no majority in time
    79: "",  # UnknownReplWriteConcern
    89: "",  # NetworkTimeout
    91: "",  # ShutdownInProgress
    100: "",  # UnsatisfiableWriteConcern
    112: "",  # WriteConflict
    117: "",  # ConflictingOperationInProgress
    133: "",  # FailedToSatisfyReadPreference
    134: "",  # ReadConcernMajorityNotAvailableYet
    150: "",  # StaleEpoch
    189: "",  # PrimarySteppedDown
    202: "",  # NetworkInterfaceExceededTimeLimit
    211: "",  # KeyNotFound: of cluster times
    246: "",  # SnapshotUnavailable
    317: "",  # ConnectionPoolExpired
    355: "",  # InterruptedDueToStorageChange
    391: "check the credentials of uri",  # ReauthenticationRequired
    8000: "",  # AtlasError: rights or a quota
    9001: "",  # SocketException
    10058: "",  # LegacyNotPrimary
    10107: "",  # NotWritablePrimary
    11600: "",  # InterruptedAtShutdown
    11601: "",  # Interrupted, by killOp
    11602: "",  # InterruptedDueToReplStateChange
    12586: "",  # BackgroundOperationInProgressForDatabase
    12587: "",  # BackgroundOperationInProgressForNamespace
    13388: "",  # StaleConfig
    13435: "",  # NotPrimaryNoSecondaryOk
    13436: "",  # NotPrimaryOrSecondary
    14031: "free some space on its disk",  # OutOfDiskSpace
}
"""Errors that are no event's fault, and what an operator can do."""
_OF_RIGHTS = frozenset({11, UNAUTHORIZED, 18, 391, 8000})
"""Those of them that last until an operator has changed something."""

LIMITS = frozenset(
    {
        50,  # MaxTimeMSExpired
        146,  # ExceededMemoryLimit
        NO_SUCH_TRANSACTION,  # the server has ended it, perhaps because it was open for too long
        257,  # TransactionTooLarge
        262,  # ExceededTimeLimit
        290,  # TransactionExceededLifetimeLimitSeconds
        372,  # TransactionTooLargeForCache
    }
)
"""Errors that fewer events may not meet, and that are no event's fault."""

REFUSALS = DUPLICATE_KEYS | {
    2,  # BadValue
    9,  # FailedToParse
    14,  # TypeMismatch
    15,  # Overflow: nested too deeply
    52,  # DollarPrefixedFieldName
    53,  # InvalidIdField
    57,  # DottedFieldName
    61,  # ShardKeyNotFound
    66,  # ImmutableField
    121,  # DocumentValidationFailure
    171,  # CannotIndexParallelArrays
    10003,  # CannotGrowDocumentInCappedNamespace
    TOO_LARGE,
    16755,  # geo keys cannot be extracted
    17280,  # KeyTooLong
    17419,  # the document is too large after the update
    17420,  # the document to upsert is too large
    31025,  # ShardKeyTooBig
}
"""Errors of one statement that another attempt cannot change."""


_COMMAND = re.compile(r"( to execute command )\{ (\w+): .*", re.DOTALL)
"""A missing right, as mongod words it: with the whole command, its session and cluster time."""
_BESIDE = re.compile(r"( \(configured timeouts|, Timeout: |, Topology Description:).*", re.DOTALL)
"""The driver's own state."""


class Rejected(Exception):
    """The server rejects one statement, and has aborted the transaction.

    ``index``: of its event in the batch, or -1.
    """

    def __init__(self, where: str, index: int, error: Mapping[str, Any]) -> None:
        self.index = index
        self.code = int(error.get("code", 0))
        super().__init__(f"{where}: {error.get('errmsg', 'rejected')} (code {self.code})")

    def outcome(self, events: int) -> Exception:
        """What the handler raises for it, if the call has so many events."""
        if self.code in LIMITS:
            return BatchTooLarge(str(self))
        if self.code in OUTAGES:
            return Unavailable(str(self))
        if self.code not in REFUSALS:
            return self
        if self.index < 0 and events > 1:  # the command is too large
            return BatchTooLarge(str(self))
        return Refused({max(self.index, 0): str(self)})


@contextmanager
def outages() -> Iterator[None]:
    """Raises an error that is no event's fault as :class:`Unavailable`, or :class:`BatchTooLarge`
    for a limit; others stay."""
    try:
        yield
    except PyMongoError as error:
        if _is_outage(error):
            code, reason = getattr(error, "code", None) or 0, message(error)
            if code in LIMITS:
                raise BatchTooLarge(reason) from error
            advice = OUTAGES.get(code, "")
            raise Unavailable(f"{reason}: {advice}" if advice else reason) from error
        raise


def is_passing(error: OperationFailure) -> bool:
    """Whether the same command may work soon, without an operator."""
    return _is_outage(error) and error.code not in _OF_RIGHTS


def message(error: Exception) -> str:
    """The server's own words, without the reply around them, or the driver's."""
    details = getattr(error, "details", None)
    if isinstance(details, Mapping) and details.get("errmsg"):
        text = _COMMAND.sub(r"\1\2", str(details["errmsg"]))
        return f"{text} (code {details.get('code', 0)})"
    return _BESIDE.sub("", str(error))


def _is_outage(error: PyMongoError) -> bool:
    if isinstance(error, (ConnectionFailure, ExecutionTimeout, WTimeoutError)):
        return True
    if not isinstance(error, OperationFailure):
        return False
    labels = ("TransientTransactionError", "UnknownTransactionCommitResult", "RetryableWriteError")
    return error.code in OUTAGES or error.code in LIMITS or any(map(error.has_error_label, labels))
