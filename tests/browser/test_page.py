"""What an operator sees: liveness, lag, failures and their reasons."""

import re
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Open
from tests.daemon import Daemon, Make, gated, scopes, until
from tests.mongod import ReplicaSet
from tests.scripted import ScriptedSet

pytestmark = pytest.mark.integration

WAITING = "3 dead letters of handler 'file' wait: fix the handler and replay, or discard."
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script> \"'>${7*7}"


def row(page: Page, name: str) -> Locator:
    return page.locator("#scope-list > li", has=page.locator("h3 b", has_text=re.compile(name)))


def refuse(server: ScriptedSet, collection: str, message: str) -> Any:
    return server.fail(
        "aggregate",
        times=None,
        code=40324,
        message=message,
        where=lambda command: command.document["aggregate"] == collection,
    )


def test_states_and_throughput_follow_the_service(
    mongod: ReplicaSet, database: str, daemon: Make, visit: Open
) -> None:
    sections = scopes("orders", "users")
    for scope in sections["scopes"]:
        scope["database"] = database
    run = daemon(mongod.uri, **sections)
    open_gate = gated(run)
    page = visit(run.start()).page
    expect(page.locator("#verdict")).to_contain_text("All 2 scopes are followed")
    expect(page.locator("#verdict")).to_have_class("notice ok")
    expect(page.locator("#followed")).to_have_text("2 / 2")
    expect(row(page, "orders").locator(".chip")).to_have_text("caught up")
    expect(page.locator("#trouble")).to_be_hidden()
    expect(page.locator("#no-errors")).to_be_visible()

    with mongod.client() as client:
        client[database].orders.insert_many([{"_id": n} for n in range(50)])
    expect(page.locator("#rate-note")).to_have_text("50 since the start")
    expect(page.locator("#rate")).to_have_text(re.compile(r"^(?!0 /s)[\d.]+ /s$"))
    expect(row(page, "orders").locator(".flight")).to_contain_text("50")
    expect(row(page, "users").locator(".flight")).to_contain_text("0")

    row(page, "orders").get_by_role("button").click()
    handler = row(page, "orders").locator("tbody tr")
    expect(handler.locator("td").first).to_have_text("file")
    open_gate()
    expect(handler.locator("td").nth(1)).to_have_text("50")
    expect(row(page, "orders").locator(".flight")).to_contain_text("0")
    page.close()  # before the service stops, which the page would report
    assert run.stop() == 0


def test_lag_grows_while_nothing_is_handled(
    scripted: ScriptedSet, daemon: Make, visit: Open
) -> None:
    run = daemon(scripted.uri, **scopes("orders", "users"))
    open_gate = gated(run)
    run.configuration["routes"][0]["max_lag"] = "2m"
    page = visit(run.start()).page
    scripted.noop()
    expect(page.locator("#behind-note")).to_have_text("no scope lags")
    scripted.insert_many("shop.orders", range(5))
    scripted.noop(250)
    expect(page.locator("#behind")).to_have_text(re.compile("4 min 1[0-9] s"))
    expect(page.locator("#behind-note")).to_have_text("orders")
    expect(row(page, "orders").locator(".behind")).to_contain_text(re.compile("4 min 1[0-9] s"))
    expect(page.locator("#verdict-head")).to_have_text("1 handler further behind than max_lag")
    trouble = page.locator("#trouble-list")
    expect(trouble).to_contain_text(
        re.compile("'file' is 4 min 1[0-9] s behind, and its max_lag is 2 min")
    )
    open_gate()
    scripted.noop()
    expect(page.locator("#trouble")).to_be_hidden()
    expect(page.locator("#behind-note")).to_have_text("no scope lags")
    expect(row(page, "orders").locator(".behind")).to_contain_text("0 s")


def test_a_halted_scope_says_why_and_is_restarted_from_here(
    scripted: ScriptedSet, daemon: Make, visit: Open
) -> None:
    fault = refuse(scripted, "users", HOSTILE)
    run = daemon(scripted.uri, **scopes("orders", "users")).start(ready=False)
    wait_for_state(run, "users", "halted")
    page = visit(run).page
    expect(page.locator("#verdict")).to_contain_text("1 of 2 scopes is halted")
    expect(page.locator("#verdict")).to_have_class("notice bad")
    expect(page).to_have_title(re.compile("1 of 2 scopes is halted"))
    trouble = page.locator("#trouble-list li")
    expect(trouble).to_have_count(1)
    expect(trouble).to_contain_text("halted")
    # Shown as text, with advice; the fixture checks that no part of it ran.
    expect(trouble).to_contain_text(HOSTILE)
    expect(trouble).to_contain_text("correct the scope's pipeline")
    expect(page.locator("#no-errors")).to_have_text("None but those above.")
    assert page.content().count("onerror=alert(1)") == 1, "an error is shown once"
    assert page.locator("img, #trouble script").count() == 0
    expect(page.locator("#scope-list > li").first.locator("h3 b")).to_have_text("users")

    button = trouble.get_by_role("button", name="Restart scope users")
    button.click()
    expect(page.locator("#sure-what")).to_contain_text("What was handled after the last save")
    page.locator("#sure-ok").click()
    expect(page.locator("#said-what")).to_have_text("Scope 'users' starts again")
    wait_for_state(run, "users", "halted")  # the cause still exists
    expect(trouble).to_contain_text("halted")
    fault.disarm()
    button.click()
    page.locator("#sure-ok").click()
    expect(page.locator("#verdict")).to_contain_text("All 2 scopes are followed")
    expect(row(page, "users").locator(".recoveries")).to_contain_text("2")
    page.close()
    assert run.stop() == 0


def test_a_failing_handler_shows_with_its_dead_letters(
    scripted: ScriptedSet, daemon: Make, visit: Open
) -> None:
    run = daemon(
        scripted.uri,
        delivery={"retry": {"attempts": 1}},
        handlers={"file": {"type": "python", "target": "broken:refuse"}},
    )
    (run.directory / "broken.py").write_text(
        "async def refuse(event):\n    raise ValueError('amqp://me:hunter2@broker/ is full')\n"
    )
    page = visit(run.start()).page
    scripted.insert_many("shop.orders", range(3))
    expect(page.locator("#letters")).to_have_text("3")
    expect(page.locator("#verdict")).to_contain_text("The scope is followed, with errors")
    expect(page.locator("#trouble-list li")).to_contain_text("amqp://me:***@broker/ is full")
    expect(page.locator(".held > li")).to_have_count(3)
    assert page.content().count("broker/ is full") == 3 + 3, (
        "each error once, and with its dead letter"
    )
    assert "hunter2" not in page.content()

    # Letters outlive the process: they wait until an operator resolves them.
    run.configuration["http"] = {"port": run.port}
    page.context.close()
    assert run.stop() == 0
    page = visit(run.start()).page
    expect(page.locator("#letters")).to_have_text("3")
    expect(page.locator("#letters-note")).to_have_text("waiting; 0 new since the start")
    expect(page.locator("#verdict")).to_contain_text("The scope is followed, dead letters wait")
    expect(page.locator("#verdict-what")).to_have_text(
        "3 dead letters to replay or discard: orders"
    )
    expect(page.locator("#followed-note")).to_have_text("ready, degraded")
    expect(page.locator("#trouble-list li")).to_contain_text(WAITING)
    expect(row(page, "orders").locator(".letters")).to_contain_text("3")
    run.command("dead-letters", "discard", "--handler", "file")
    expect(page.locator("#letters")).to_have_text("0")
    expect(page.locator("#verdict-head")).to_have_text("The scope is followed")
    expect(page.locator("#trouble")).to_be_hidden()


def test_a_halted_scope_says_that_dead_letters_wait(
    scripted: ScriptedSet, daemon: Make, visit: Open
) -> None:
    run = daemon(
        scripted.uri,
        **scopes("orders", "users"),
        delivery={"retry": {"attempts": 1}, "dead_letters": {"max_consecutive": 3}},
    )
    run.configuration["handlers"] = {"file": {"type": "python", "target": "broken:refuse"}}
    (run.directory / "broken.py").write_text(
        "async def refuse(event):\n    raise ValueError('not this one')\n"
    )
    page = visit(run.start()).page
    scripted.insert_many("shop.orders", range(9))
    expect(page.locator("#verdict-head")).to_have_text("1 of 2 scopes is halted")
    expect(page.locator("#verdict-what")).to_have_text(
        "orders: manual intervention required. 3 dead letters to replay or discard: orders"
    )
    expect(page.locator("#behind-note")).to_have_text(re.compile("^orders"))
    expect(page.locator("#trouble-list .why")).to_have_text(
        [re.compile("3 events in a row became dead letters"), re.compile(f"^{re.escape(WAITING)}")]
    )
    expect(page.locator("#no-errors")).to_be_hidden()
    page.close()
    run.kill()


def test_lost_contact_is_shown_and_ends_by_itself(
    scripted: ScriptedSet, daemon: Make, visit: Open
) -> None:
    run = daemon(scripted.uri).start()
    run.configuration["http"] = {"port": run.port}
    seen = visit(run)
    page = seen.page
    expect(page.locator("#lost")).to_be_hidden()
    run.kill()  # a stop would show its drain first
    expect(page.locator("#lost")).to_contain_text("No contact with the service since")
    expect(page.locator("#lost")).to_have_role("alert")
    expect(page).to_have_title(re.compile("lost contact"))
    expect(page.locator("body")).to_have_class("stale")
    expect(page.locator("#verdict")).to_contain_text("The scope is followed")  # as before
    run.start()
    expect(page.locator("#lost")).to_be_hidden()
    expect(page).not_to_have_title(re.compile("lost contact"))
    seen.complaints[:] = [text for text in seen.complaints if "ERR_CONNECTION_REFUSED" not in text]


def wait_for_state(run: Daemon, scope: str, state: str) -> None:
    """Asks the service itself, because the page may still show the state before a click."""
    run.port = until(lambda: run.logged("service.starting"), "the start")[0]["http_port"]
    until(lambda: run.status(scope).get("state") == state, f"{scope} {state}")
