"""The metrics of the contract: names, labels, and nothing where nothing is known."""

from __future__ import annotations

import time
from typing import ClassVar

import pytest
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tailrace.observe.gauges import OplogGauges, ScopeGauges, ServerGauges
from tailrace.observe.metrics import Metrics

CONTRACT = {
    "tailrace_events_total": ("counter", {"scope", "operation"}),
    "tailrace_events_handled_total": ("counter", {"scope", "handler", "outcome"}),
    "tailrace_handler_seconds": ("histogram", {"scope", "handler"}),
    "tailrace_in_flight_events": ("gauge", {"scope"}),
    "tailrace_in_flight_bytes": ("gauge", {"scope"}),
    "tailrace_lag_seconds": ("gauge", {"scope", "stage"}),
    "tailrace_checkpoint_age_seconds": ("gauge", {"scope"}),
    "tailrace_checkpoint_saves_total": ("counter", {"scope", "outcome"}),
    "tailrace_stream_resumes_total": ("counter", {"scope", "reason"}),
    "tailrace_watcher_restarts_total": ("counter", {"scope", "reason"}),
    "tailrace_watcher_state": ("gauge", {"scope", "state"}),
    "tailrace_invalidates_total": ("counter", {"scope"}),
    "tailrace_last_round_trip_timestamp_seconds": ("gauge", {"scope"}),
    "tailrace_dead_letters_waiting": ("gauge", {"scope", "handler"}),
    "tailrace_server_up": ("gauge", set()),
    "tailrace_oplog_window_seconds": ("gauge", set()),
    "tailrace_oplog_window_age_seconds": ("gauge", set()),
    "tailrace_oplog_fill_ratio": ("gauge", set()),
    "tailrace_log_lines_dropped_total": ("counter", set()),
}
"""The design's names, each with its type and labels (as far as they exist)."""

LATER = {
    "tailrace_handler_retries_total",
    "tailrace_handler_overdue",
    "tailrace_event_loop_lag_seconds",
    "tailrace_dead_letters_total",
    "tailrace_history_lost_total",
}
"""Names that are not in the design, and those of the contract that come with what they count."""


class Service:
    """Metrics with one scope, whose gauges a test sets."""

    def __init__(self) -> None:
        self.metrics = Metrics(["streaming", "halted"])
        self.gauges = ScopeGauges("streaming")
        self.metrics.watch("orders", lambda: self.gauges)
        self.server = ServerGauges(None)
        self.metrics.server = lambda: self.server
        self.metrics.log_lines_dropped = lambda: 3

    def use_everything(self) -> None:
        metrics = self.metrics
        metrics.events.labels("orders", "insert").inc(3)
        metrics.saves.labels("orders", "ok").inc()
        metrics.restarts.labels("orders", "handler").inc()
        metrics.invalidates.labels("orders").inc()
        metrics.recorder("orders", "audit").handled(0.003, 5)
        metrics.letters_waiting({("orders", "audit"): 2})
        lags = {"read": 1.0, "handled": 2.0, "committed": 3.0}
        saved_at, resumes = time.time() - 5, {"NotWritablePrimary": 1}
        self.gauges = ScopeGauges("streaming", 7, 900, lags, saved_at, 1_700_000_000.5, resumes)
        self.server = ServerGauges(True, OplogGauges(86400.0, 0.5, 10.0))

    @property
    def text(self) -> str:
        return generate_latest(self.metrics.registry).decode()

    @property
    def families(self) -> list[Metric]:
        return [*text_string_to_metric_families(self.text)]

    def sample(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)


@pytest.fixture
def service() -> Service:
    return Service()


def test_every_name_of_the_contract_is_exported_with_its_type_and_labels(service: Service) -> None:
    service.use_everything()
    families = {family.name: family for family in service.families}
    for name, (kind, labels) in CONTRACT.items():
        family = families[name.removesuffix("_total")]
        assert family.type == kind, name
        assert family.documentation, name
        samples = [s for s in family.samples if not s.name.endswith("_created")]
        if kind != "histogram":
            assert {sample.name for sample in samples} == {name}
        for sample in samples:
            assert set(sample.labels) - {"le"} == labels, name


def test_no_other_name_or_label_is_exported(service: Service) -> None:
    service.use_everything()
    known = {"scope", "handler", "operation", "reason", "stage", "state", "outcome", "le"}
    for family in service.families:
        if family.name.startswith("tailrace_"):
            assert {family.name, f"{family.name}_total"} & (CONTRACT.keys() | LATER)
            assert {label for sample in family.samples for label in sample.labels} <= known


def test_the_process_is_measured_too(service: Service) -> None:
    assert "process_resident_memory_bytes" in service.text
    assert "python_gc_collections_total" in service.text
    assert "_created" not in service.text


class TestGauges:
    def test_that_are_unknown_are_absent(self, service: Service) -> None:
        """Never 0: what has told nothing is not up to date."""
        samples = {sample.name for family in service.families for sample in family.samples}
        for name in (
            "tailrace_lag_seconds",
            "tailrace_checkpoint_age_seconds",
            "tailrace_last_round_trip_timestamp_seconds",
            "tailrace_server_up",
            "tailrace_oplog_window_seconds",
            "tailrace_oplog_window_age_seconds",
            "tailrace_oplog_fill_ratio",
        ):
            assert name not in samples
        assert service.sample("tailrace_in_flight_events", scope="orders") == 0

    def test_are_asked_at_each_scrape(self, service: Service) -> None:
        service.use_everything()
        assert service.sample("tailrace_in_flight_bytes", scope="orders") == 900
        age = service.sample("tailrace_checkpoint_age_seconds", scope="orders")
        assert age is not None
        assert 5 <= age < 60
        service.gauges = ScopeGauges("streaming", in_flight_bytes=1)
        assert service.sample("tailrace_in_flight_bytes", scope="orders") == 1

    def test_of_a_checkpoint_from_the_future_are_not_negative(self, service: Service) -> None:
        service.gauges = ScopeGauges("streaming", checkpoint_saved_at=time.time() + 1000)
        assert service.sample("tailrace_checkpoint_age_seconds", scope="orders") == 0

    def test_of_the_server_are_one_while_it_answers_and_zero_while_not(
        self, service: Service
    ) -> None:
        for up in (True, False):
            service.server = ServerGauges(up)
            assert service.sample("tailrace_server_up") == float(up)

    def test_of_the_state_are_one_for_it_and_zero_for_the_others(self, service: Service) -> None:
        service.gauges = ScopeGauges("halted")
        states = {
            state: service.sample("tailrace_watcher_state", scope="orders", state=state)
            for state in ("streaming", "halted")
        }
        assert states == {"streaming": 0, "halted": 1}


def test_counters_that_alerts_look_at_are_there_from_the_start(service: Service) -> None:
    """A rate over a series that appears with its first failure misses that failure."""
    assert service.sample("tailrace_invalidates_total", scope="orders") == 0
    for outcome in ("ok", "error"):
        labels = {"scope": "orders", "outcome": outcome}
        assert service.sample("tailrace_checkpoint_saves_total", **labels) == 0


class TestLettersWaiting:
    NAME = "tailrace_dead_letters_waiting"

    def test_are_those_of_the_last_count_and_none_elsewhere(self, service: Service) -> None:
        for handler in ("audit", "lake"):
            service.metrics.recorder("orders", handler)
        service.metrics.letters_waiting({("orders", "audit"): 3})
        assert service.sample(self.NAME, scope="orders", handler="audit") == 3
        assert service.sample(self.NAME, scope="orders", handler="lake") == 0
        service.metrics.letters_waiting({})
        assert service.sample(self.NAME, scope="orders", handler="audit") == 0

    def test_of_a_handler_that_is_not_configured_any_more_are_told_too(
        self, service: Service
    ) -> None:
        service.metrics.letters_waiting({("orders", "gone"): 1, ("elsewhere", "audit"): 7})
        assert service.sample(self.NAME, scope="orders", handler="gone") == 1
        # Another process that shares the store follows that scope, and tells of it.
        assert service.sample(self.NAME, scope="elsewhere", handler="audit") is None


class TestHandlers:
    LABELS: ClassVar = {"scope": "orders", "handler": "audit"}

    def test_calls_are_timed_in_buckets_and_events_are_counted(self, service: Service) -> None:
        recorder = service.metrics.recorder("orders", "audit")
        recorder.handled(0.0005, 1)
        recorder.handled(0.003, 10)
        recorder.failed(100, 4)
        count = "tailrace_events_handled_total"
        assert service.sample(count, **self.LABELS, outcome="ok") == 11
        assert service.sample(count, **self.LABELS, outcome="error") == 4
        buckets = {
            le: service.sample("tailrace_handler_seconds_bucket", **self.LABELS, le=le)
            for le in ("0.0005", "0.0025", "0.005", "60.0", "+Inf")
        }
        assert buckets == {"0.0005": 1, "0.0025": 1, "0.005": 2, "60.0": 2, "+Inf": 3}
        assert service.sample("tailrace_handler_seconds_count", **self.LABELS) == 3
        total = service.sample("tailrace_handler_seconds_sum", **self.LABELS)
        assert total == pytest.approx(100.0035)
