"""Says once that spans or metrics cannot be sent, and once that they can be again.

The SDK logs every attempt. Its lines go no further; the last one is the reason that ours names.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import structlog
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from tailrace.masking import masked_line

_LONGEST_REASON = 500


@dataclass(slots=True)
class SendFailure:
    """Why the last request of a signal failed, and what was rejected of one that did not."""

    text: str = ""
    rejected: str = ""


_OF_HEADERS = "opentelemetry.util.re"
"""The logger whose messages have a header with its value, which may be a secret."""


class LastMessages(logging.Handler):
    """Keeps the last message of the SDK about each signal, and passes none on."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.traces, self.metrics = SendFailure(), SendFailure()
        self._of_opening: dict[str, None] | None = {}

    def warn_of_ignored(self) -> None:
        """Logs what the SDK has said while the exporters were made: it ignores values that it does
        not know, instead of refusing them."""
        told, self._of_opening = self._of_opening, None
        for text in told or ():
            structlog.get_logger().warning("telemetry.value_ignored", error=text)

    def emit(self, record: logging.LogRecord) -> None:
        if self._of_opening is not None:
            text = str(record.msg) if record.name == _OF_HEADERS else record.getMessage()
            self._of_opening[masked_line(text, _LONGEST_REASON)] = None
            return
        reason = self.metrics if "metric" in record.name else self.traces
        text = masked_line(record.getMessage(), _LONGEST_REASON)
        # These only say that time is up; what came before has the reason.
        if not (reason.text and "shutdown" in text.lower()):
            reason.text = text

    @contextmanager
    def installed(self) -> Iterator[None]:
        """The lines of the SDK come here in the block."""
        logger = logging.getLogger("opentelemetry")
        before = logger.handlers[:], logger.propagate
        logger.handlers[:], logger.propagate = [self], False
        try:
            yield
        finally:
            logger.handlers[:], logger.propagate = before


class CollectorState:
    """Whether the collector at ``url`` takes what is sent. ``signal``: traces or metrics."""

    def __init__(self, signal: str, url: str, reason: SendFailure) -> None:
        self._about = {"signal": signal, "collector": url}
        self._reason = reason
        self._is_away = False

    def note(self, *, sent: bool) -> None:
        """Logs a change of it. Called from any thread."""
        log = structlog.get_logger().bind(**self._about)
        rejected, self._reason.rejected = self._reason.rejected, ""
        sent = sent and not rejected
        if not sent and not self._is_away:
            log.warning(
                "telemetry.not_sent",
                error=masked_line(rejected or self._reason.text, _LONGEST_REASON)
                or "the collector did not take it",
                consequence="dropped until the collector answers; changes are delivered as before",
            )
        elif sent and self._is_away:
            log.info("telemetry.sent_again")
        if sent:
            self._reason.text = ""
        self._is_away = not sent


class ReportedExporter(SpanExporter):
    """An exporter of spans whose failures are logged once."""

    def __init__(self, exporter: SpanExporter, state: CollectorState) -> None:
        self._exporter = exporter
        self._state = state

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        self._state.note(sent=result is SpanExportResult.SUCCESS)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()
