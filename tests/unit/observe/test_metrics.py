"""The metrics of the contract: names and labels, and no samples while nothing is known."""

import time

import pytest
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tailrace.observe.metrics import Metrics
from tailrace.observe.scrape import ProofGauges, ScopeGauges, ServerGauges, SubscriptionGauges

CONTRACT = {
    "tailrace_events_total": ("counter", {"scope", "operation"}),
    "tailrace_events_handled_total": ("counter", {"scope", "handler", "outcome"}),
    "tailrace_handler_seconds": ("histogram", {"scope", "handler"}),
    "tailrace_end_to_end_latency_seconds": ("histogram", {"scope", "handler"}),
    "tailrace_in_flight_events": ("gauge", {"scope"}),
    "tailrace_in_flight_bytes": ("gauge", {"scope"}),
    "tailrace_lag_seconds": ("gauge", {"scope", "stage"}),
    "tailrace_subscription_state": ("gauge", {"scope", "handler", "state"}),
    "tailrace_freshness_breached": ("gauge", {"scope", "handler"}),
    "tailrace_streams_open": ("gauge", {"scope"}),
    "tailrace_checkpoint_age_seconds": ("gauge", {"scope"}),
    "tailrace_checkpoint_saves_total": ("counter", {"scope", "outcome"}),
    "tailrace_stream_resumes_total": ("counter", {"scope", "reason"}),
    "tailrace_watcher_restarts_total": ("counter", {"scope", "reason"}),
    "tailrace_watcher_state": ("gauge", {"scope", "state"}),
    "tailrace_invalidates_total": ("counter", {"scope"}),
    "tailrace_last_round_trip_timestamp_seconds": ("gauge", {"scope"}),
    "tailrace_dead_letters_waiting": ("gauge", {"scope", "handler"}),
    "tailrace_differing_documents": ("gauge", {"scope", "handler"}),
    "tailrace_verified_documents_total": ("counter", {"scope", "handler"}),
    "tailrace_verified_through_timestamp": ("gauge", {"scope", "handler"}),
    "tailrace_verification_late_timestamp": ("gauge", {"scope", "handler"}),
    "tailrace_server_up": ("gauge", set()),
    "tailrace_oplog_window_seconds": ("gauge", set()),
    "tailrace_oplog_window_age_seconds": ("gauge", set()),
    "tailrace_oplog_fill_ratio": ("gauge", set()),
    "tailrace_log_lines_dropped_total": ("counter", set()),
    "tailrace_handler_retries_total": ("counter", {"scope", "handler"}),
    "tailrace_destination_up": ("gauge", {"scope", "handler"}),
    "tailrace_handler_overdue": ("gauge", {"scope", "handler"}),
    "tailrace_handler_call_seconds": ("gauge", {"scope", "handler"}),
    "tailrace_event_loop_lag_seconds": ("histogram", set()),
    "tailrace_dead_letters_total": ("counter", {"scope", "handler"}),
    "tailrace_history_lost_total": ("counter", {"scope"}),
    "tailrace_snapshot_documents_total": ("counter", {"scope", "collection"}),
    "tailrace_snapshot_remaining_documents": ("gauge", {"scope", "collection"}),
    "tailrace_lease_held": ("gauge", {"scope"}),
    "tailrace_lease_epoch": ("gauge", {"scope"}),
    "tailrace_lease_transfers_total": ("counter", {"scope", "reason"}),
}
"""Every name with its type and labels."""


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
        metrics.proofs = lambda: {("orders", "audit"): ProofGauges(9, 1_700_000_000, 2, 1.8e9)}
        metrics.restarts.labels("orders", "handler").inc()
        metrics.invalidates.labels("orders").inc()
        metrics.lease_transfers.labels("orders", "expired").inc()
        metrics.recorder("orders", "audit").handled(0.003, 5)
        metrics.letters_waiting({("orders", "audit"): 2})
        lags = {"read": 1.0, "handled": 2.0, "committed": 3.0}
        saved_at, resumes = time.time() - 5, {"NotWritablePrimary": 1}
        read = {"shop.orders": (5, 2)}
        self.gauges = ScopeGauges(
            "streaming",
            7,
            900,
            lags,
            saved_at,
            1_700_000_000.5,
            resumes,
            read,
            (True, 4),
            1,
            {"audit": SubscriptionGauges("attached", breached=False)},
        )
        self.server = ServerGauges(True, 86400.0, 0.5, 10.0)

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


def test_each_name_is_exported_with_its_type_and_labels_and_no_other(service: Service) -> None:
    service.use_everything()
    families = {each.name: each for each in service.families if each.name.startswith("tailrace_")}
    assert set(families) == {name.removesuffix("_total") for name in CONTRACT}
    for name, (kind, labels) in CONTRACT.items():
        family = families[name.removesuffix("_total")]
        assert family.type == kind, name
        assert family.documentation, name
        if kind != "histogram":
            assert {sample.name for sample in family.samples} == {name}
        for sample in family.samples:
            assert {*sample.labels} - {"le"} == labels, name
    assert "process_resident_memory_bytes" in service.text


def test_gauges_that_are_unknown_are_absent(service: Service) -> None:
    """Never 0: a scope that has reported nothing is not up to date."""
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


def test_gauges_are_computed_at_each_scrape(service: Service) -> None:
    service.use_everything()
    assert service.sample("tailrace_in_flight_bytes", scope="orders") == 900
    age = service.sample("tailrace_checkpoint_age_seconds", scope="orders")
    assert age is not None
    assert 5 <= age < 60
    service.gauges = ScopeGauges("streaming", in_flight_bytes=1)
    assert service.sample("tailrace_in_flight_bytes", scope="orders") == 1


def test_the_lag_of_a_scope_is_beside_that_of_each_handler(service: Service) -> None:
    """Queries of a scope that name no handler go on to mean the scope."""
    own = {"audit": SubscriptionGauges("catching_up", {"handled": 2.0})}
    service.gauges = ScopeGauges("streaming", lags={"handled": 9.0}, subscriptions=own)
    assert service.sample("tailrace_lag_seconds", scope="orders", stage="handled") == 9
    labels = {"scope": "orders", "handler": "audit"}
    assert service.sample("tailrace_lag_seconds", stage="handled", **labels) == 2
    for state, value in (("attached", 0), ("catching_up", 1)):
        assert service.sample("tailrace_subscription_state", state=state, **labels) == value


def test_a_limit_of_the_lag_holds_for_handlers_of_before_and_after(service: Service) -> None:
    former = service.metrics.recorder("orders", "audit")
    service.metrics.limit_lags({("orders", "audit"): 30, ("orders", "index"): 60})
    later, others = (service.metrics.recorder("orders", name) for name in ("index", "log"))
    limits = [each.freshness.max_lag for each in (former, later, others)]
    assert limits == [30, 60, None]
    service.metrics.limit_lags({})
    assert former.freshness.max_lag is None


def test_the_age_of_a_checkpoint_from_the_future_is_not_negative(service: Service) -> None:
    service.gauges = ScopeGauges("streaming", checkpoint_saved_at=time.time() + 1000)
    assert service.sample("tailrace_checkpoint_age_seconds", scope="orders") == 0


def test_the_gauges_of_state_and_server_are_one_or_zero(service: Service) -> None:
    service.gauges, service.server = ScopeGauges("halted"), ServerGauges(False)
    state = "tailrace_watcher_state"
    assert service.sample(state, scope="orders", state="halted") == 1
    assert service.sample(state, scope="orders", state="streaming") == 0
    assert service.sample("tailrace_server_up") == 0


def test_counters_that_alerts_look_at_are_there_from_the_start(service: Service) -> None:
    """The rate of a series that appears with its first failure would miss that failure."""
    assert service.sample("tailrace_invalidates_total", scope="orders") == 0
    for outcome in ("ok", "error"):
        labels = {"scope": "orders", "outcome": outcome}
        assert service.sample("tailrace_checkpoint_saves_total", **labels) == 0


def test_letters_waiting_are_those_of_the_last_count(service: Service) -> None:
    def waiting(scope: str, handler: str) -> float | None:
        return service.sample("tailrace_dead_letters_waiting", scope=scope, handler=handler)

    service.metrics.recorder("orders", "audit")
    assert waiting("orders", "audit") is None
    service.metrics.letters_waiting({("orders", "gone"): 1, ("elsewhere", "audit"): 7})
    assert waiting("orders", "audit") == 0
    assert waiting("orders", "gone") == 1
    # Another process that shares the store follows that scope, and exports it.
    assert waiting("elsewhere", "audit") is None
    service.metrics.letters_waiting({})
    assert waiting("orders", "gone") == 0


def test_calls_are_timed_in_buckets_and_events_are_counted(service: Service) -> None:
    labels = {"scope": "orders", "handler": "audit"}
    recorder = service.metrics.recorder("orders", "audit")
    recorder.handled(0.0005, 1)
    recorder.handled(0.003, 10)
    recorder.failed(100, 4)
    count = "tailrace_events_handled_total"
    assert service.sample(count, **labels, outcome="ok") == 11
    assert service.sample(count, **labels, outcome="error") == 4
    buckets = {
        le: service.sample("tailrace_handler_seconds_bucket", **labels, le=le)
        for le in ("0.0005", "0.0025", "0.005", "60.0", "+Inf")
    }
    assert buckets == {"0.0005": 1, "0.0025": 1, "0.005": 2, "60.0": 2, "+Inf": 3}
    total = service.sample("tailrace_handler_seconds_sum", **labels)
    assert total == pytest.approx(100.0035)
