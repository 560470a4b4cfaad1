"""What the page shows of single documents, to those who may act: dead letters with their events."""

import re
from datetime import datetime, timedelta

import bson
import pytest
from playwright.sync_api import Route, expect

from tests.browser.conftest import SCHEMES, Open
from tests.browser.test_page_access import fits, focused
from tests.browser.test_page_orders import TOKEN, press, signed_in, unfolded
from tests.daemon import Daemon, Make, until
from tests.machine import free_port
from tests.mongod import ReplicaSet
from tests.verifying import TABLE, by_hand

pytestmark = pytest.mark.integration

FUSSY = """
from pathlib import Path

async def handle(event):
    if event.full_document.get("price") is None and not Path("fixed").exists():
        raise ValueError("no price")
    if event.full_document.get("price") == "odd":
        raise TypeError("odd price")
"""


@pytest.fixture
def run(mongod: ReplicaSet, database: str, daemon: Make) -> Daemon:
    """One scope, whose handler refuses documents without a price until a file is there.

    The document "old" is from before its start.
    """
    with mongod.client() as client:
        client[database].c.insert_one({"_id": "old", "price": 0})
    scope = {"name": "orders", "database": database, "collection": "c", "max_await_time_ms": 200}
    run = daemon(
        mongod.uri,
        scopes=[scope],
        http={"port": 0, "token": TOKEN},
        delivery={"retry": {"attempts": 1}},
        handlers={"file": {"type": "python", "target": "fussy:handle"}},
    )
    (run.directory / "fussy.py").write_text(FUSSY)
    return run.start()


OPENED_AGAIN = """
() => {
  const dialog = document.getElementById("sure");
  dialog.close();  // as Escape does
  document.activeElement.click();
}
"""
"""A dialog is opened again before the browser has told the page that it was closed."""


def a_minute_later(route: Route) -> None:
    """Answers as the service does, by a clock that is a minute ahead."""
    answer = route.fetch()
    status = answer.json()
    status["now"] = (datetime.fromisoformat(status["now"]) + timedelta(minutes=1)).isoformat()
    route.fulfill(response=answer, json=status)


def test_dead_letters_are_shown_replayed_and_discarded_by_keyboard(
    run: Daemon, mongod: ReplicaSet, database: str, visit: Open
) -> None:
    with mongod.client() as client:
        client[database].c.insert_many([{"_id": n, "note": f"<b>{n}</b>"} for n in (1, 2)])
        client[database].c.replace_one({"_id": 1}, {"price": 3})  # waits behind the first
    until(lambda: run.status()["handlers"]["file"]["waiting"] == 3, "the dead letters")
    page = visit(run, 390).page
    held, trouble = page.locator(".held > li"), page.locator("#trouble")
    sure, said = page.locator("#sure"), page.locator("#said-what")
    unfolded(page)
    expect(trouble).to_contain_text("see 'tailrace dead-letters list --scope orders'")
    expect(trouble.get_by_role("button")).to_have_count(0)
    expect(held).to_have_count(0)  # they quote documents
    press(page, "orders")

    signed_in(page)
    expect(trouble).not_to_contain_text("tailrace dead-letters")
    press(page, "Show dead letters of scope orders")
    assert focused(page) == "Dead letters"
    expect(held).to_have_count(3)
    expect(held.first).to_contain_text('insert of {"_id": 1}')
    expect(held.first).to_contain_text("ValueError: no price")
    first, second = [
        held.nth(n).get_by_text(re.compile("^Show$")).get_attribute("aria-label") for n in (0, 1)
    ]
    assert first is not None
    assert second is not None
    press(page, first)
    event = page.get_by_role("region", name="Event of dead letter")
    expect(event).to_contain_text('"note": "<b>1</b>"')
    fits(page, 390)

    replay = first.replace("Show", "Replay")
    press(page, replay)
    expect(sure).to_contain_text("All dead letters of this document go to handler file again")
    expect(sure).to_contain_text("2 of those listed")
    press(page, "Replay")
    expect(said).to_contain_text("Replayed 0 dead letters; 1 failed again")
    expect(held).to_have_count(3)
    assert focused(page) == replay
    (run.directory / "fixed").touch()
    page.keyboard.press("Enter")
    press(page, "Replay")
    expect(said).to_contain_text("Replayed 2 dead letters; 0 failed again, 0 left")
    expect(held).to_have_count(1)
    until(lambda: run.status()["handlers"]["file"]["waiting"] == 1, "the count of the store")

    discard = second.replace("Show", "Discard")
    press(page, discard)
    expect(sure).to_contain_text("Handler file never gets this event. There is no undo.")
    page.keyboard.press("Escape")
    expect(sure).to_be_hidden()
    expect(held).to_have_count(1)
    page.keyboard.press("Enter")
    expect(sure).to_be_visible()
    page.evaluate(OPENED_AGAIN)
    press(page, "Discard")
    expect(said).to_have_text("Discarded 1 dead letter")
    expect(page.locator("#letters")).to_have_text("0")
    expect(trouble).to_contain_text("no price")  # the last error of the last minute
    page.route("**/status", a_minute_later)
    expect(trouble).to_be_hidden()
    page.unroute_all(behavior="ignoreErrors")
    done = [log["action"] for log in run.logged("action.done")]
    assert done == ["replay", "replay", "discard"]


def test_dead_letters_are_replayed_and_discarded_by_their_error(
    run: Daemon, mongod: ReplicaSet, database: str, visit: Open
) -> None:
    with mongod.client() as client:
        client[database].c.insert_many([{"_id": n} for n in range(25)])
        client[database].c.insert_many([{"_id": n, "price": "odd"} for n in range(30, 33)])
    until(lambda: run.status()["handlers"]["file"]["waiting"] == 28, "the dead letters")
    page = visit(run).page
    groups, held = page.locator(".groups > li"), page.locator(".held > li")
    said = page.locator("#said-what")
    signed_in(page)
    press(page, "Show dead letters of scope orders")
    expect(groups).to_contain_text(
        ["25 dead letters: ValueError: no price", "3 dead letters: TypeError: odd price"]
    )
    expect(held).to_have_count(20)
    groups.last.get_by_role("button", name="Show only these").click()
    expect(held).to_have_count(3)
    expect(held.first).to_contain_text('insert of {"_id": 30}')

    groups.last.get_by_role("button", name="Discard all").click()
    expect(page.locator("#sure")).to_contain_text("Discard 3 dead letters of handler file?")
    press(page, "Discard")
    expect(said).to_have_text("Discarded 3 dead letters")
    expect(groups).to_contain_text(["25 dead letters with the same error"])
    (run.directory / "fixed").touch()
    groups.get_by_role("button", name="Replay all").click()
    press(page, "Replay")
    expect(said).to_have_text("Replayed 25 dead letters")
    expect(page.locator("#letters")).to_have_text("0")


def test_the_page_tells_what_became_of_a_document(
    run: Daemon, mongod: ReplicaSet, database: str, visit: Open
) -> None:
    with mongod.client() as client:
        client[database].c.insert_many([{"_id": "<b>", "price": 1}, {"_id": 2, "price": 2}])
    until(lambda: run.status()["handlers"]["file"]["ok"] == 2, "the changes")
    seen = visit(run, 390)
    page = seen.page
    field = page.get_by_label("_id of a document, as Extended JSON")
    answer = page.locator("[role=status]", has=page.locator(".held"))
    unfolded(page)
    expect(field).to_be_hidden()
    signed_in(page)
    expect(field).to_be_visible()
    field.focus()
    page.keyboard.type("A-17")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Not answered:")).to_contain_text("is not Extended JSON")
    seen.was_refused()
    field.fill('"<b>"')
    press(page, "Ask")
    expect(answer).to_contain_text(f"insert of {database}.c")
    expect(answer).to_contain_text("file: handled")
    fits(page, 390)
    field.fill('"old"')
    press(page, "Ask")
    expect(page.get_by_text("What you can do")).to_be_visible()
    press(page, "Take this snapshot")
    expect(page.locator("#sure")).to_contain_text(f'with {{"_id": "old"}} of {database}.c')
    press(page, "Take the snapshot")
    expect(page.locator("#said-what")).to_contain_text("start of its snapshot is accepted")
    until(lambda: run.status()["handlers"]["file"]["ok"] == 3, "the document")
    assert run.status()["snapshot"]["filter"] == '{"_id": "old"}'
    press(page, "Forget token")
    expect(field).to_be_hidden()
    expect(page.get_by_text("What you can do")).to_have_count(0)


def test_rows_are_verified_and_repaired(
    mongod: ReplicaSet, database: str, daemon: Make, visit: Open
) -> None:
    with mongod.client() as client:
        client[database].c.insert_many([{"_id": n} for n in range(300)])
    scope = {"name": "orders", "database": database, "collection": "c", "max_await_time_ms": 200}
    scope |= {"full_document": "lookup", "snapshot": "initial"}
    run = daemon(
        mongod.uri,
        scopes=[scope],
        http={"port": free_port(), "token": TOKEN},
        handlers={"file": {"type": "python", "target": "mine:Positioned"}},
    )
    (run.directory / "mine.py").write_text(TABLE)
    run.start()
    run.until_copied()
    with by_hand(run) as rows:
        rows.execute("DELETE FROM rows WHERE key = ?", (bson.encode({"_id": 2}),))
    run.command("verify", "orders", "--key", "1")
    page = visit(run, 390).page
    unfolded(page)
    line, sure = page.locator(".proofs > li"), page.locator("#sure")
    expect(line).to_have_text(re.compile(r"file: not verified yet · a part of it, .*1 document"))
    expect(line.get_by_role("button")).to_have_count(0)
    signed_in(page)
    press(page, "Verify the rows of handler file")
    expect(sure).to_contain_text("are compared with what file holds of them")
    press(page, "Verify")
    expect(line).to_contain_text(re.compile(r"verified to \d\d:\d\d, 1 differ"))
    press(page, "Repair the rows of handler file")
    expect(sure).to_contain_text("1 keys come again to file.")
    press(page, "Repair")
    expect(page.locator("#said-what")).to_contain_text("come again to file")
    until(lambda: run.status()["snapshot"]["state"] == "done", "the repair")
    press(page, "Verify the rows of handler file")
    press(page, "Verify")
    expect(line).to_contain_text(re.compile(r"verified to \d\d:\d\d, 0 differ"))
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        fits(page, 390)
    said = (("Pause", "paused"), ("Resume", "comparing"), ("Cancel", "was cancelled"))
    with run.begun("verify", "orders", "--documents-per-second", "20"):
        expect(line).to_contain_text("comparing")
        for verb, words in said:
            press(page, f"{verb} the verification of handler file")
            press(page, verb)
            expect(line).to_contain_text(words)
