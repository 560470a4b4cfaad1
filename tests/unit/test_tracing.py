"""What a scope is followed with: without traces, the very objects that it would have."""

from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.trace import TracerProvider

from tailrace.engine import ByteBudget, Runtime, WatcherState
from tailrace.observe.metrics import Metrics
from tailrace.stores.memory import MemoryDeadLetters, MemoryDesiredStates
from tailrace.telemetry.sdk import Spans
from tailrace.tracing import Tracing, plans, watcher
from tests.handlers import handler
from tests.unit.config.files import minimal, parse
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.stores import ScriptedStore
from tests.unit.engine.watching import CLUSTER
from tests.unit.snapshot.test_requests import Gone


async def nothing(_: object) -> None: ...


def replaced_by(tracing: Tracing | None) -> set[str]:
    """Which parts of a scope are others than those it was given."""
    metrics = Metrics(state.value for state in WatcherState)
    letters, states = MemoryDeadLetters(), MemoryDesiredStates()
    runtime = Runtime(
        ScriptedDriver(), ScriptedStore(), letters, states, CLUSTER, ByteBudget(1000), metrics
    )
    plain = handler("log", nothing)
    (plan,) = plans(parse(minimal()), lambda scope: {"log": plain}, Gone(), tracing)
    used = watcher(plan, runtime, tracing).scope.runtime
    pairs: Mapping[str, tuple[Any, Any]] = {
        "driver": (runtime.driver, used.driver),
        "store": (runtime.store, used.store),
        "runtime": (runtime, used),
        "handler": (plain, plan.routed[0].handler),
    }
    return {part for part, (given, used) in pairs.items() if given is not used}


def test_nothing_is_put_around_the_parts_of_a_scope_without_traces() -> None:
    assert replaced_by(None) == set()
    traced = Spans(TracerProvider().get_tracer("test"))
    assert replaced_by(traced) == {"driver", "store", "runtime", "handler"}
