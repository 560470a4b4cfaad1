"""Reloads of a running daemon: only what changed is restarted, and a mistake changes nothing."""

import json
import signal
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.daemon import until
from tests.orders import Orders
from tests.reloads import Reloaded, post


@pytest.fixture
def reloaded(orders: Orders) -> Reloaded:
    return Reloaded(orders)


def test_only_what_has_changed_is_restarted(reloaded: Reloaded) -> None:
    """A handler of one scope is opened anew, a scope is added, which gets an object of its own, and
    then all is taken away again."""
    run, config = reloaded.run.start(), reloaded.config
    reloaded.insert(1, "orders", "users")
    reloaded.until("first", 1)
    reloaded.until("orders", 1)
    first = json.loads(json.dumps(config))
    config["handlers"]["sink"] = reloaded.sink("second")
    config["scopes"].append(reloaded.scope("carts"))
    config["routes"].append({"scope": "carts", "handlers": ["note", "sink"]})
    status, dry = reloaded.reload(dry_run=True)
    assert (status, reloaded.life()) == (202, ["opened first"])
    assert dry["message"].endswith("Dry run: nothing was changed")
    assert dry["scopes"] == {
        "orders": {"effect": "kept", "because": []},
        "users": {"effect": "restarted", "because": ["handler sink"]},
        "carts": {"effect": "begun", "because": []},
    }
    assert dry["handlers"] == {"note": "kept", "sink": "reopened"}
    status, done = reloaded.reload()
    assert (status, done["draining"]) == (202, [])
    assert {**done, "message": "", "dry_run": True} == {**dry, "message": "", "draining": []}
    run.until_ready()
    reloaded.insert(2, "orders", "users", "carts")
    reloaded.until("second", 2, 2)
    reloaded.until("orders", 1, 2)
    reloaded.until("users", 1, 2)
    reloaded.until("carts", 2)
    until(lambda: len(reloaded.life()) == 4, "the close of the first sink")
    assert reloaded.life() == ["opened first", "opened second", "opened second", "closed first"]
    assert run.metric("sink_written_total", path="second") == 2
    assert run.metric("sink_written_total", path="first") is None
    assert [reloaded.runs(name) for name in ("orders", "users", "carts")] == [1, 2, 1]
    done_ = [each for each in run.logged("action.done") if each["action"] == "reload"]
    (logged,) = [each for each in done_ if each["to"]]
    assert logged["by"] == "test at 127.0.0.1"
    assert logged["to"] == "scopes restarted: users; scopes begun: carts; handlers reopened: sink"
    config.clear()
    config.update(first)
    assert reloaded.reload()[1]["scopes"]["carts"] == {"effect": "stopped", "because": []}
    assert not run.status("carts")
    assert run.metric("tailrace_in_flight_events", scope="carts") is None
    assert reloaded.reload()[1]["message"] == "nothing has changed"
    assert run.stop() == 0, run.log


def test_what_is_written_after_a_scope_was_begun_comes_even_after_a_kill(
    reloaded: Reloaded,
) -> None:
    """The answer of the reload says from when on changes come."""
    run, config = reloaded.run.start(), reloaded.config
    reloaded.insert(1, "carts")
    config["scopes"].append(reloaded.scope("carts"))
    config["routes"].append({"scope": "carts", "handlers": ["note"]})
    assert reloaded.reload()[0] == 202
    run.kill()
    reloaded.insert(2, "carts")
    run.start()
    reloaded.until("carts", 2)
    assert run.stop() == 0, run.log


def test_a_scope_that_is_removed_and_added_again_continues_at_its_checkpoint(
    reloaded: Reloaded,
) -> None:
    """And another type of handler, in the place of one that is open, gets what comes then."""
    run, config = reloaded.run.start(), reloaded.config
    reloaded.insert(1, "users")
    reloaded.until("users", 1)
    scope, route = config["scopes"].pop(), config["routes"].pop()
    assert reloaded.reload()[0] == 202
    reloaded.insert(2, "users", "orders")
    reloaded.until("orders", 2)
    config["scopes"].append(scope)
    config["routes"].append(route)
    config["handlers"]["sink"] = {"type": "jsonl", "path": "events.jsonl"}
    assert reloaded.reload()[0] == 202
    reloaded.until("users", 1, 2)
    run.until_events(1)
    assert run.ids() == [2]
    config["handlers"]["sink"]["json"] = "canonical"
    status, answer = reloaded.reload()
    assert status == 422
    assert "is open in this process for handler 'sink': give another path" in answer
    assert run.stop() == 0, run.log
    assert reloaded.life() == ["opened first", "closed first"]


MISTAKES = [
    ({"routes": [{"scope": "nobody", "handlers": ["note"]}]}, "routes[0].scope: there is no scope"),
    ({"http": {"port": 1}}, "http.port: changed, and only a restart of the process applies that"),
    ({"store": {"type": "memory"}}, "store: changed, and only a restart"),
    (
        {"handlers": {"note": {"type": "python", "target": "mine:none"}}},
        "routes[1].handlers[1]: there is no handler 'sink'",
    ),
]


def test_a_mistake_changes_nothing_and_is_told_as_check_tells_it(reloaded: Reloaded) -> None:
    run = reloaded.run.start()
    right = json.loads(json.dumps(reloaded.config))
    file = run.directory / "config.yaml"
    for change, message in MISTAKES:
        reloaded.config.clear()
        reloaded.config.update(right | change)
        status, answer = reloaded.reload(dry_run=bool(change.get("http")))
        assert status == 422
        assert answer.startswith(f"{file}: {message}")
        assert "(line " in answer
    reloaded.config.clear()
    reloaded.config.update(right)
    reloaded.config["handlers"]["sink"] = reloaded.sink("refused")
    status, answer = reloaded.reload()
    assert status == 422
    assert answer.startswith(f"{file}: handlers.sink: Sink cannot be opened: ValueError: no such")
    run.signal(signal.SIGHUP)  # of no terminal: a reload
    until(lambda: [e for e in run.logged("action.refused") if e["by"] == "SIGHUP"], "the refusal")
    reloaded.insert(1, "users")
    reloaded.until("first", 1)
    assert (reloaded.runs("users"), reloaded.life()) == (1, ["opened first"])
    refused = run.logged("action.refused")
    assert {each["action"] for each in refused} == {"reload"}
    assert refused[-1]["level"] == "error"
    reloaded.config["handlers"]["sink"] = reloaded.sink("second")
    run.configured()
    run.signal(signal.SIGHUP)
    until(lambda: len(reloaded.life()) == 3, "the reload")
    assert run.stop() == 0, run.log
    assert "Traceback" not in run.log


def test_a_handler_that_does_not_end_is_cancelled_and_other_scopes_go_on(
    reloaded: Reloaded,
) -> None:
    """The change of its call comes again. A second reload waits, and finds nothing to do."""
    run, config = reloaded.run.start(), reloaded.config
    closed = run.directory / "users-closed"
    closed.touch()
    reloaded.insert(1, "users")
    until(lambda: run.numbers("users-begun"), "the call")
    config["scopes"][1]["batch_size"] = 7
    run.configured()
    with ThreadPoolExecutor() as pool:
        answers = list(pool.map(lambda body: post(run, body), ({}, {})))
    assert [(status, answer["draining"]) for status, answer in answers] == [(202, [])] * 2
    assert sum(answer["message"] == "nothing has changed" for _, answer in answers) == 1
    until(lambda: run.numbers("users-begun") == [1, 1], "the call of the new run")
    reloaded.insert(1, "orders")
    reloaded.until("orders", 1)
    assert reloaded.runs("orders") == 1
    closed.unlink()
    reloaded.until("users", 1)
    assert run.stop() == 0, run.log


def test_a_stop_in_a_reload_ends_the_process(reloaded: Reloaded) -> None:
    run, config = reloaded.run, reloaded.config
    config["shutdown"] = {"grace_seconds": 20}
    run.configured()
    run.start()
    closed = run.directory / "users-closed"
    closed.touch()
    reloaded.insert(1, "users")
    until(lambda: run.numbers("users-begun"), "the call")
    config["scopes"][1]["batch_size"] = 7
    run.configured()
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(post, run, {})
        until(lambda: run.status("users")["state"] == "draining", "the drain")
        run.signal(signal.SIGTERM)
        closed.unlink()
        assert run.wait() == 0, run.log
        assert answer.exception() is not None or answer.result()[0] in (202, 409, 503)
    assert run.numbers("users") == [1]
    assert "Traceback" not in run.log


def test_a_secret_that_was_replaced_in_its_file_is_read_again(reloaded: Reloaded) -> None:
    run = reloaded.run
    secret = run.directory / "token"
    secret.write_text("first-token-of-the-hook\n")
    with socket.create_server(("127.0.0.1", 0)) as hook:
        url, given = f"http://127.0.0.1:{hook.getsockname()[1]}/", {"file": str(secret)}
        reloaded.config["handlers"]["hook"] = {
            "type": "http",
            "url": url,
            "headers": {"Authorization": given},
        }
        run.start()
        assert reloaded.reload()[1]["handlers"]["hook"] == "kept"
        secret.write_text("second-token-of-the-hook\n")
        assert reloaded.reload()[1]["handlers"]["hook"] == "reopened"
    secret.unlink()
    status, answer = reloaded.reload()
    assert status == 422
    assert "the secret file" in answer
    assert "token-of-the-hook" not in run.log
    assert run.stop() == 0, run.log


def test_handlers_that_inherit_a_default_of_retries_get_the_new_one(reloaded: Reloaded) -> None:
    """Only their scopes are restarted, and they stay open."""
    run, config = reloaded.run, reloaded.config
    config["delivery"] = {"retry": {"attempts": 100, "first_seconds": 0.01, "cap_seconds": 0.01}}
    config["handlers"]["note"]["retry"] = {"attempts": 1}
    run.start()
    config["delivery"]["retry"]["attempts"] = 2
    done = reloaded.reload()[1]
    assert done["scopes"]["users"]["because"] == ["delivery.retry"]
    assert done["scopes"]["orders"]["effect"] == "kept"
    assert set(done["handlers"].values()) == {"kept"}
    reloaded.insert(1, "users", bad=True)
    until(lambda: run.logged("event.dead_lettered"), "the dead letter")
    assert run.numbers("tried") == [1, 1]
    assert run.stop() == 0, run.log


def test_the_command_asks_the_daemon(reloaded: Reloaded, unused_tcp_port: int) -> None:
    reloaded.config["http"] = {"port": unused_tcp_port}
    run = reloaded.run.start()
    reloaded.config["handlers"]["sink"] = reloaded.sink("second")
    run.configured()
    shown = run.command("reload", "--dry-run", "--config", "config.yaml")
    assert "scope    users   restarted  handler sink" in shown
    assert json.loads(run.command("reload", "--json"))["handlers"]["sink"] == "reopened"
    (run.directory / "config.yaml").write_text("mongodb: ]\n")
    code, errors = run.refused("reload")
    assert code == 2
    assert errors.startswith("tailrace: config.yaml: line 1, column 10: not YAML")
    assert run.stop() == 0, run.log


def test_a_module_that_never_loads_is_named_and_later_reloads_work(reloaded: Reloaded) -> None:
    run = reloaded.run.start()
    (run.directory / "slow.py").write_text("import time\ntime.sleep(3600)\n")
    note = reloaded.config["handlers"]["note"]
    reloaded.config["handlers"]["note"] = {"type": "python", "target": "slow:note"}
    status, answer = reloaded.reload(dry_run=True)
    assert status == 422
    assert "handlers.note: the target 'slow:note' was still being imported after 10 s" in answer
    reloaded.config["handlers"]["note"] = note
    assert reloaded.reload()[1]["message"] == "nothing has changed"
    source = run.directory / "mine.py"
    source.write_text(f"{source.read_text()}\nCHANGED = True\n")
    _, answer = reloaded.reload()
    assert answer["restart_needed"] == {"note": [str(source)], "sink": [str(source)]}
    assert answer["message"].startswith("restart needed: the code of handlers note, sink has chan")
    assert run.stop() == 0, run.log
