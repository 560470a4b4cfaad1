"""What JetStream's answer to a message that it does not store says something about.

``error_code`` of https://github.com/nats-io/nats-server/blob/main/server/errors.json, as it comes
from ``stream.processJetStreamMsg`` and ``checkMsgHeadersPreClusteredProposal``.
"""

from tailrace.errors import PermanentError, Refused, Unavailable

LARGEST_HEADERS = 65_535
"""JetStream's limit for the headers of a message, their first line and their end included."""
LARGEST_IN_FILE = 32 * 2**20 - 4096
"""A stream with file storage takes no record of more than 32 MiB (``rlBadThresh`` in filestore.go),
subject included, and has no ``error_code`` of its own for that."""

_ABOUT_MESSAGE = frozenset(
    {
        10054,  # JSStreamMessageExceedsMaximumErr: larger than max_msg_size
        10097,  # JSStreamHeaderExceedsMaximumErr: headers larger than 64 KiB
    }
)
"""Every other code is about the destination, as a wrong wait can be seen and loses nothing.

The stream: 10060 JSStreamNotMatchErr, 10077 JSStreamStoreFailedF (full), 10109 JSStreamSealedErr,
10118 and 10194 (offline), 10169 JSMessageIncrMissingErr (a stream of counters). The account: 10002,
10035, 10039, 10120. The server: 10008 and 10009 (no leader), 10023, 10028 and 10047 (out of
resources), 10076, 10167 (too many requests). 10158: a repetition that is still under way."""


class NotStored(Exception):
    """JetStream's answer to a message for ``subject``; ``code`` is its ``error_code``."""

    def __init__(self, subject: str, code: int, description: str) -> None:
        super().__init__(f"JetStream does not store a message for {subject!r}: {description}")
        self.code = code


def failure(error: NotStored, events: int) -> Exception:
    """What the answer means for a batch of so many events.

    Others of a larger batch may be stored: delivered alone, the event at fault is refused.
    """
    if error.code not in _ABOUT_MESSAGE:
        return Unavailable(str(error))
    return Refused({0: str(error)}) if events == 1 else PermanentError(str(error))
