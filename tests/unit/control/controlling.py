"""The actions of a process, as the API performs them."""

from collections.abc import Mapping
from typing import Any

from tailrace.control.action import Action
from tailrace.control.bodies import Body
from tailrace.control.control import Control
from tailrace.control.outcome import Done
from tailrace.stores.memory import MemoryVerifications
from tailrace.verify.verifications import Verifications
from tests.unit.engine.watching import Watching, supervisor_of

BY = "ann on laptop at 127.0.0.1"


class NoTimes:
    """A server that tells neither its time nor its oplog: then the clock counts."""

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        return {}


async def no_reload(*, dry_run: bool) -> Done:
    raise AssertionError("nothing is reloaded")


def no_server() -> Any:
    raise AssertionError("no source is compared")


def control_of(one: Watching, **fields: Any) -> Control:
    """With a scope that a test scripts."""
    supervisor = supervisor_of(one)
    letters = one.runtime.letters
    compared = Verifications(
        lambda: supervisor.watchers,
        no_server,
        MemoryVerifications(),
        letters,
    )
    parts: dict[str, Any] = {"server": NoTimes(), "inquiries": {}, "reload": no_reload}
    parts["verifications"] = compared
    return Control(supervisor, one.runtime, **{**parts, **fields})


async def ask(control: Control, action: Action, about: str, request: Body, by: str = BY) -> Any:
    """Performs an action on a scope or a dead letter; returns what was done, or the answer."""
    return await action.perform(control, about, request, by)
