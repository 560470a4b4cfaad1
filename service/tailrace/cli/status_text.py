"""The report of ``tailrace status``: what ``/status`` says, and the command that helps."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TextIO

from tailrace.observe.terminal_text import UNKNOWN, Colour, age, columns, paint, printable

_HEADINGS = ("SCOPE", "HANDLER", "STATE", "LAG", "IN FLIGHT", "DEAD LETTERS")
_COMMAND = re.compile(r"'(tailrace [^']+)'")
_WORST_FIRST = ("halted", "standby", "backing_off", "starting", "waiting", "paused", "draining")
"""The rest is well. Of a scope that another member follows, its report counts."""
_IDLE = ("halted", "standby", "backing_off", "paused", "stopped")
"""In these states a scope hands nothing to its handlers."""
_APART = ("halted", "paused", "backing_off", "waiting", "detached", "catching_up")
"""The states in which a handler is not with the others of its scope."""
_COLOURS = {"halted": Colour.RED, "waiting": Colour.YELLOW, "backing_off": Colour.YELLOW}

Status = Mapping[str, Any]


def report_of(status: Status) -> dict[str, Any]:
    """In JSON types, the worst scope first; ``next``: the commands that help, in their order."""
    noted: list[str] = list(status["degraded"])
    about = {name: _about(name, noted) for name in status["scopes"]}
    scopes = [_scope(name, scope, about[name]) for name, scope in status["scopes"].items()]
    others = [line for line in noted if not any(line in lines for lines in about.values())]
    server = status["server"] or {}
    if since := server.get("unreachable_since"):
        others.insert(0, f"MongoDB does not answer since {since}")
    return {
        "well": bool(status["ready"]) and not noted and not others,
        "ready": status["ready"],
        "stopping": status["stopping"],
        "notes": others,
        "scopes": sorted(scopes, key=_gravity),
    }


def text_of(report: Status, out: TextIO) -> str:
    """A table, then what needs attention, with the command that helps."""
    rows = [row for scope in report["scopes"] for row in _rows(scope)]
    text = columns(_HEADINGS, rows) if rows else "No scope is followed yet.\n"
    text += "".join(f"\n{line}\n" for scope in report["scopes"] for line in _verified(scope))
    for line in report["notes"]:
        text += f"\n{printable(line)}\n"
    for scope in report["scopes"]:
        reason = scope["reason"] if _state(scope) in _WORST_FIRST else None
        notes = [*([reason] if reason else []), *scope["notes"]]
        if not notes and not scope["next"]:
            continue
        colour = _COLOURS.get(_state(scope), Colour.BLUE)
        text += f"\n{paint(scope['scope'], colour, out)}: {_shown(scope)}\n"
        text += "".join(f"  {printable(note)}\n" for note in notes)
        text += "".join(f"  next: {command}\n" for command in scope["next"])
    return text


def _scope(name: str, scope: Status, notes: Sequence[str]) -> dict[str, Any]:
    reason = scope["reason"] or ""
    notes = [note for note in notes if not reason or reason not in note]
    handlers = [_handler(name, scope, *each) for each in scope["handlers"].items()]
    halted = [each for each in handlers if each["state"] == "halted"]
    notes += [f"handler {each['handler']!r} is halted: {each['reason']}" for each in halted]
    owner = (scope["lease"] or {}).get("owner") or None
    elsewhere = scope["state"] == "standby" and owner is not None
    reported = (scope["reported"] or {}) if elsewhere else {}
    return {
        "scope": name,
        "state": scope["state"],
        "followed_by": owner,
        "since": scope["since"],
        "reported_state": reported.get("state"),
        "lag_seconds": reported.get("lag_seconds")
        if elsewhere
        else scope["lag_seconds"].get("handled"),
        "in_flight": scope["in_flight"]["events"],
        "reason": reported.get("reason") or reason or None,
        "notes": notes,
        "next": []
        if elsewhere
        else [*_next(name, scope, [reason, *notes], [each["handler"] for each in halted])],
        "handlers": handlers,
    }


def _handler(scope: str, of: Status, name: str, handler: Status) -> dict[str, Any]:
    """A handler; where it is on its own, how that goes."""
    down, letters, own = handler["down_since"], handler["waiting"], handler["state"]
    call = None if down else handler["call_since"]
    apart = own in _APART and own != of["state"]
    since, reason = down or call, handler["down_cause"] or (handler["call"] if call else None)
    if apart and (own == "halted" or not since):
        state, since, reason = own, handler["since"], handler["reason"] or None
    elif since:
        state = "down" if down else "in_call"
    elif letters:
        state = "dead_letters"
    else:
        state = "idle" if of["state"] in _IDLE else "well"
    return {
        "handler": name,
        "state": state,
        "since": since,
        "reason": reason,
        "lag_seconds": handler["lag_seconds"].get("handled") if apart else None,
        "in_flight": handler["in_flight"]["events"] if apart else None,
        "handled": handler["ok"],
        "dead_letters": letters,
        "verification": handler["verification"],
        "next": [f"tailrace dead-letters list --scope {shlex.quote(scope)}"] if letters else [],
    }


def _next(name: str, scope: Status, texts: Iterable[str], halted: Iterable[str]) -> Iterable[str]:
    """The commands that the texts name, then the one for the state."""
    commands = [command for text in texts for command in _COMMAND.findall(text)]
    quoted = shlex.quote(name)
    match scope["state"]:
        case "halted":
            commands.append(f"tailrace scopes restart {quoted}")
        case "paused" if not commands:  # beyond loopback the reason is not shown
            commands.append(f"tailrace scopes resume {quoted}")
    for handler in halted:
        commands.append(f"tailrace scopes restart {quoted} --handler {shlex.quote(handler)}")
    if (scope["snapshot"] or {}).get("state") == "paused":
        commands.append(f"tailrace snapshot resume {quoted}")
    return dict.fromkeys(commands)


def _about(name: str, lines: Iterable[str]) -> list[str]:
    return [line for line in lines if line.startswith(f"scope {name}: ")]


def _gravity(scope: Status) -> tuple[int, str]:
    state = _state(scope)
    if state in _WORST_FIRST:
        return _WORST_FIRST.index(state), scope["scope"]
    return len(_WORST_FIRST) + (not scope["notes"]), scope["scope"]


def _state(scope: Status) -> str:
    """The state, as the process that follows the scope says it; empty if that is not known."""
    if scope["state"] == "standby" and scope["followed_by"] is not None:
        return scope["reported_state"] or ""
    return str(scope["state"])


def _shown(scope: Status) -> str:
    """The state in words, and who says so."""
    if scope["state"] == "standby" and scope["followed_by"] is not None:
        state = _words(scope["reported_state"] or "followed")
        return f"{state}, on {scope['followed_by']}"
    return _words(scope["state"])


def _rows(scope: Status) -> Iterable[tuple[str, ...]]:
    counts = [handler["dead_letters"] for handler in scope["handlers"]]
    letters = UNKNOWN if None in counts else str(sum(counts))
    in_flight = str(scope["in_flight"])
    yield scope["scope"], "", _shown(scope), _behind(scope) or UNKNOWN, in_flight, letters
    for handler in scope["handlers"]:
        waits = UNKNOWN if handler["dead_letters"] is None else str(handler["dead_letters"])
        state, since = _words(handler["state"]), handler["since"]
        state = f"{state} since {since[:19]}Z" if since else state
        in_flight = "" if handler["in_flight"] is None else str(handler["in_flight"])
        yield "", handler["handler"], state, _behind(handler), in_flight, waits


def _verified(scope: Status) -> Iterable[str]:
    """A line for each handler whose rows were compared with the source, or are to be."""
    for handler in scope["handlers"]:
        of = handler["verification"]
        if of is not None and (of["state"] or of["reason"] or of["due"]):
            said = "; ".join(_verification(of))
            yield printable(f"{scope['scope']} {handler['handler']}: {said}")


def _verification(of: Status) -> Iterable[str]:
    state, proven = of["state"], of["proven"]
    if proven is not None:
        yield f"verified to {proven['through']}, {proven['differences']} differ"
    if state in ("running", "paused"):
        going = "comparing" if state == "running" else "paused"
        yield f"{going}, {of['compared']} of about {of['estimate']}"
    elif proven is None:
        yield "not verified yet"
    if state in ("failed", "cancelled"):
        yield f"the last verification is {state}"
    if of["reason"]:
        yield of["reason"]


def _behind(of: Status) -> str:
    lag = of["lag_seconds"]
    return "" if lag is None else age(timedelta(seconds=lag))


def _words(state: str) -> str:
    return state.replace("_", " ")
