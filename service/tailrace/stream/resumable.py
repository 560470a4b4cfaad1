"""Which errors of a ``getMore`` are resumable, and where a stream resumes.

Source: driver specification "Change Streams", sections "Resumable Error" and "Resume Process".
"""

from dataclasses import dataclass

from bson.timestamp import Timestamp

from tailrace.errors import CommandFailed, DriverError, ServerUnsuitable
from tailrace.event.reply import Reply
from tailrace.model import ResumeToken, StartPoint

CURSOR_NOT_FOUND = 43
RESUMABLE_LABEL = "ResumableChangeStreamError"

READ_CONCERN_MAJORITY_NOT_AVAILABLE_YET = 134

LABELS_SINCE = 9
"""The wire version (server 4.4) from which the server labels resumable errors."""

# The specification's list for servers before 4.4.
UNLABELLED_CODES = frozenset(
    {
        6,  # HostUnreachable
        7,  # HostNotFound
        89,  # NetworkTimeout
        91,  # ShutdownInProgress
        189,  # PrimarySteppedDown
        262,  # ExceededTimeLimit
        9001,  # SocketException
        10107,  # NotWritablePrimary
        11600,  # InterruptedAtShutdown
        11602,  # InterruptedDueToReplStateChange
        13435,  # NotPrimaryNoSecondaryOk
        13436,  # NotPrimaryOrSecondary
        63,  # StaleShardVersion
        150,  # StaleEpoch
        13388,  # StaleConfig
        234,  # RetryChangeStream
        133,  # FailedToSatisfyReadPreference
    }
)


HISTORY_LOST = frozenset(
    {
        286,  # ChangeStreamHistoryLost: the oplog no longer reaches back to the token
        280,  # ChangeStreamFatalError: not resumable, as when the pipeline changed
        260,  # InvalidResumeToken
        222,  # CloseChangeStream
        40576,  # resume of a change stream was not possible (older servers' 286)
        50811,  # the token belongs to another collection
    }
)
"""The server does not accept the position."""

UNAUTHORIZED = 13
NO_ACCESS = frozenset(
    {
        11,  # UserNotFound
        UNAUTHORIZED,  # also "requires authentication", when the user was removed meanwhile
        18,  # AuthenticationFailed
        391,  # ReauthenticationRequired
    }
)
"""The server refuses the login or the privilege, perhaps only until an operator has changed it."""

_OF_THE_MOMENT = frozenset(
    {
        CURSOR_NOT_FOUND,
        READ_CONCERN_MAJORITY_NOT_AVAILABLE_YET,
        24,  # LockTimeout
        26,  # NamespaceNotFound
        50,  # MaxTimeMSExpired
        112,  # WriteConflict
        136,  # CappedPositionLost
        175,  # QueryPlanKilled
        202,  # NetworkInterfaceExceededTimeLimit
        237,  # CursorKilled
        279,  # ClientDisconnect
        290,  # TransactionExceededLifetimeLimitSeconds
        317,  # ConnectionPoolExpired
        365,  # TemporarilyUnavailable
        384,  # ConnectionError
        462,  # IngressRequestRateLimitExceeded
        8000,  # AtlasError
        11601,  # Interrupted
    }
)


def may_be_of_event(error: DriverError) -> bool:
    """Whether a ``getMore`` may have failed because of one event, which the server cannot make.

    As when an image is missing (47), the event is larger than 16 MB (10334), or an expression of
    the pipeline fails for it (many codes). Nothing but reading again, one event at a time, tells.
    """
    if not isinstance(error, CommandFailed):
        return False
    others = UNLABELLED_CODES | HISTORY_LOST | NO_ACCESS | _OF_THE_MOMENT
    return error.code not in others and RESUMABLE_LABEL not in error.labels


def is_resumable(error: DriverError) -> bool:
    """Whether the stream may resume after a ``getMore`` that failed with this error."""
    if not isinstance(error, CommandFailed):
        return True
    if error.code == CURSOR_NOT_FOUND:
        return True
    if error.wire_version >= LABELS_SINCE:
        return RESUMABLE_LABEL in error.labels
    return error.code in UNLABELLED_CODES


def is_retryable(error: DriverError) -> bool:
    """Whether a find that failed with this error may be sent again.

    Source: driver specification "Retryable Reads". The list for change streams contains its codes.
    """
    if not isinstance(error, CommandFailed):
        return True
    return error.code in UNLABELLED_CODES or error.code == READ_CONCERN_MAJORITY_NOT_AVAILABLE_YET


def reason(error: DriverError) -> str:
    """A label for metrics: the server's name for the error, ``read_preference`` or ``network``."""
    if isinstance(error, CommandFailed):
        return error.code_name or str(error.code)
    return "read_preference" if isinstance(error, ServerUnsuitable) else "network"


@dataclass(slots=True)
class ResumePosition:
    """The cached token, and the other facts that decide the start point of a resume."""

    start: StartPoint
    token: ResumeToken | None = None
    operation_time: Timestamp | None = None
    returned_event: bool = False

    def __post_init__(self) -> None:
        self.token = self.start.token

    def opened(self, reply: Reply) -> None:
        """Keeps the operation time of the first aggregate if there is no other position."""
        if self.start == StartPoint() and not reply.bounds and reply.post_batch_token is None:
            self.operation_time = reply.operation_time

    def advance(self, token: ResumeToken | None, events: int = 0) -> None:
        """A reply was returned. ``token``: its post-batch token, else that of its last event.

        That of an empty reply may be older than the event after which the stream was opened
        (MongoDB 9.0, SERVER-135099): it is no position of this stream.
        """
        self.returned_event = self.returned_event or events > 0
        older = self.token is not None and token is not None and token.precedes(self.token)
        if token is not None and (events or not older):
            self.token = token

    @property
    def resume_point(self) -> StartPoint:
        """At most one start option, chosen as the specification's resume process says."""
        if self.start.start_after is not None and not self.returned_event:
            return StartPoint(start_after=self.token)
        if self.token is not None:
            return StartPoint(resume_after=self.token)
        return StartPoint(at_operation_time=self.operation_time or self.start.at_operation_time)
