"""An operator's orders on the page, with the keyboard only: each says first what it would do."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.browser.test_page_access import fits, focused
from tests.daemon import Daemon, Make, gated, until
from tests.mongod import ReplicaSet

pytestmark = pytest.mark.integration

TOKEN = "right-0123456789"


@pytest.fixture
def run(mongod: ReplicaSet, database: str, daemon: Make) -> Daemon:
    """One scope, whose handler waits for a gate; a change needs a token."""
    scope = {"name": "orders", "database": database, "collection": "c", "max_await_time_ms": 200}
    return daemon(mongod.uri, scopes=[scope], http={"port": 0, "token": TOKEN})


def reach(page: Page, name: str) -> None:
    """Presses Tab until the control with this name has the focus, and is seen to have it."""
    passed: list[str] = []
    while focused(page) != name:
        assert len(passed) < 40, f"{name!r} is not reached: {passed}"
        page.keyboard.press("Tab")
        passed.append(focused(page))
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
    assert float(outline.removesuffix("px")) >= 2


def press(page: Page, name: str, key: str = "Enter") -> None:
    reach(page, name)
    page.keyboard.press(key)


def signed_in(page: Page) -> None:
    press(page, "Enter token")
    page.keyboard.type(TOKEN)
    page.keyboard.press("Enter")
    expect(page.locator("#sign")).to_have_text("Forget token")


def unfolded(page: Page) -> None:
    """Opens the scope, which is folded on a narrow screen."""
    if page.locator("#scope-list h3 button").get_attribute("aria-expanded") == "false":
        press(page, "orders")
    expect(page.locator(".facts").first).to_be_visible()


def test_a_scope_is_paused_moved_and_resumed_by_keyboard(
    run: Daemon, mongod: ReplicaSet, database: str, visit: Open
) -> None:
    open_gate = gated(run)
    seen = visit(run.start(), 390)
    page, chip = seen.page, seen.page.locator("#scope-list .chip")
    said, sure, move = page.locator("#said-what"), page.locator("#sure"), page.locator("#seek")
    controls = page.locator(".operate.whole")
    unfolded(page)
    curve = page.locator(".details").get_by_role(
        "img", name=re.compile("^Lag of orders of the last")
    )
    expect(curve).to_have_accessible_name(re.compile(r"now \d s, at most \d+ s$"))
    expect(curve.locator("path")).to_have_attribute("d", re.compile("^M.*L"))
    expect(controls).to_be_hidden()  # nothing is shown without the right to do it
    assert page.evaluate("document.documentElement.scrollHeight") < 1600, "with the scope opened"

    press(page, "Enter token")
    page.keyboard.type("wrong-0123456789")
    page.keyboard.press("Enter")
    expect(said).to_have_text("The token was refused")
    seen.was_refused()
    page.keyboard.press("Escape")
    expect(said).to_be_hidden()
    expect(controls).to_be_hidden()
    signed_in(page)

    with mongod.client() as client:
        begun = client.admin.command("ping")["$clusterTime"]["clusterTime"].time
        client[database].c.insert_many([{"_id": n} for n in range(3)])
    press(page, "Pause scope orders", "Space")
    expect(sure).to_contain_text(re.compile(r"3 changes in flight \(\d+ B\) are drained.*by file"))
    page.keyboard.press("Escape")
    expect(sure).to_be_hidden()
    assert focused(page) == "Pause scope orders"
    page.keyboard.press("Enter")
    open_gate()
    expect(sure).to_contain_text("Nothing is in flight")  # what it would do is kept up to date
    assert page.locator("#sure-keep").evaluate("(e) => e === document.activeElement")
    press(page, "Pause")
    expect(said).to_have_text("Scope 'orders' is paused")
    expect(chip).to_have_text("paused")

    reach(page, "Seek scope orders")
    page.keyboard.press("Enter")
    expect(move).to_contain_text("It is now at")
    reach(page, "Time in UTC")
    page.locator("#seek-at").fill("2001-01-01T00:00:00")
    press(page, "Show what it would do")
    expect(move).to_contain_text("Not possible: at: 2001-01-01T00:00Z is before the oplog")
    seen.was_refused()
    assert page.locator("#seek-ok").is_disabled()
    page.locator("#seek-at").fill(
        page.evaluate("(t) => new Date(t * 1000).toISOString().slice(0, 19)", begun)
    )
    press(page, "Show what it would do")
    expect(move).to_contain_text(re.compile("come again, to file. Dry run: nothing was changed"))
    fits(page, 390)
    press(page, "Seek")
    expect(said).to_contain_text("Scope 'orders' is moved: changes from")
    assert run.status()["handlers"]["file"]["ok"] == 3

    press(page, "Resume scope orders")
    expect(sure).to_contain_text("The changes since then go to file")
    press(page, "Resume")
    expect(said).to_have_text("Scope 'orders' is resumed")
    until(lambda: run.status()["handlers"]["file"]["ok"] == 6, "the changes that come again")
    done = [f"{log['action']} {log['scope']}" for log in run.logged("action.done")]
    assert done == ["pause orders", "seek orders", "seek orders", "resume orders"]


def test_a_former_position_an_undo_a_snapshot_and_a_reload_are_ordered_by_keyboard(
    run: Daemon, mongod: ReplicaSet, database: str, visit: Open
) -> None:
    page = visit(run.start(), 800).page
    said, sure, move = page.locator("#said-what"), page.locator("#sure"), page.locator("#seek")
    expect(page.locator("#reload")).to_be_hidden()  # nothing is shown without the right to do it
    expect(page.locator(".operate.whole")).to_be_hidden()
    unfolded(page)
    signed_in(page)
    with mongod.client() as client:
        client[database].c.insert_many([{"_id": n} for n in range(3)])

    def until_handled(count: int) -> None:
        until(lambda: run.status()["handlers"]["file"]["ok"] == count, f"{count} changes")

    until_handled(3)
    press(page, "Seek scope orders")
    expect(page.locator("#seek-former")).to_be_enabled()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.value") == "former"
    reach(page, "Former position")
    page.keyboard.press("End")  # the first position of all
    press(page, "Show what it would do")
    expect(move).to_contain_text("come again, to file. Dry run: nothing was changed.")
    press(page, "Seek")
    expect(said).to_contain_text("Scope 'orders' is moved: changes from")
    until_handled(6)

    press(page, "Seek scope orders")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.value") == "undo"
    press(page, "Show what it would do")
    expect(move).to_contain_text("Dry run: nothing was changed.")
    press(page, "Seek")
    expect(move).to_be_hidden()
    until(lambda: len(run.logged("action.done")) == 4, "the undo, tried first")
    expect(said).to_contain_text("Scope 'orders' is moved")

    press(page, "Take a snapshot in scope orders")
    expect(sure).to_contain_text(f"All documents of {database}.c, as they are now, go to file")
    press(page, "Take the snapshot")
    expect(said).to_contain_text("start of its snapshot is accepted")
    until(lambda: (run.status()["snapshot"] or {}).get("state") == "done", "the snapshot")
    assert run.status()["snapshot"]["scanned"] == 3

    run.configuration["scopes"].append({**run.configuration["scopes"][0], "name": "more"})
    run.configuration["routes"].append({"scope": "more", "handlers": ["file"]})
    run.configured()
    press(page, "Reload configuration")
    expect(sure).to_contain_text("more")
    assert not run.status("more")
    press(page, "Reload")
    expect(page.locator("#followed")).to_have_text("2 / 2")
    expect(said).to_contain_text("more")


def test_a_span_is_replayed_to_a_handler_and_the_replay_cancelled_by_keyboard(
    run: Daemon, mongod: ReplicaSet, database: str, visit: Open
) -> None:
    gated(run)()
    seen = visit(run.start(), 390)
    page = seen.page
    said, form, facts = page.locator("#said-what"), page.locator("#replay"), page.locator(".facts")
    unfolded(page)
    signed_in(page)
    with mongod.client() as client:
        begun = client.admin.command("ping")["$clusterTime"]["clusterTime"].time
        client[database].c.insert_many([{"_id": n} for n in range(3)])
    until(lambda: run.status()["handlers"]["file"]["ok"] == 3, "the changes")

    def tried(key: str) -> None:
        press(page, "Replay changes of scope orders")
        since = "(t) => new Date(t * 1000).toISOString().slice(0, 19)"
        page.locator("#replay-from").fill(page.evaluate(since, begun))
        reach(page, "Only the document with this _id (Extended JSON)")
        page.keyboard.type(key)
        press(page, "Show what it would do")

    tried("{")
    expect(form).to_contain_text("Not possible: keys: ")
    seen.was_refused()
    assert page.locator("#replay-ok").is_disabled()
    page.keyboard.press("Escape")
    tried("1")
    expect(form).to_contain_text("come again, to file. Dry run: nothing was handed over.")
    fits(page, 390)
    press(page, "Replay")
    expect(said).to_contain_text("come again, to file")
    expect(facts.last).to_contain_text("done, 1 change to file")

    (run.directory / "open").unlink()
    tried("")
    press(page, "Replay")
    expect(facts.last).to_contain_text("running, 0 changes to file")
    press(page, "Cancel the replay of scope orders")
    expect(page.locator("#sure")).to_contain_text("What was replayed stays.")
    press(page, "Cancel the replay")
    expect(facts.last).to_contain_text("cancelled, 0 changes to file")
    expect(said).to_have_text("Scope 'orders': its replay is cancelled")
