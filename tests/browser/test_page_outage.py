"""The page in an outage of the server or of a destination: what it says, and since when."""

import re
import signal

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.daemon import Make, scopes
from tests.mongod import ReplicaSet
from tests.orders import QUICK

pytestmark = pytest.mark.integration

AWAY = """
from pathlib import Path
from tailrace import Unavailable

async def handle(event):
    if not Path("back").exists():
        raise Unavailable("the shop's <b>stock</b> service is closed")
"""

NOTE_TEXTS = """
(selector) => {
  window.texts = new Set();
  const note = () => document.querySelectorAll(selector).forEach((e) => texts.add(e.textContent));
  note();
  const all = { subtree: true, childList: true, characterData: true };
  new MutationObserver(note).observe(document.body, all);
}
"""


def test_an_absent_server_is_shown_once_and_steadily(
    mortal: ReplicaSet, daemon: Make, visit: Open
) -> None:
    uri = f"{mortal.uri}{QUICK}&serverSelectionTimeoutMS=500"  # so that it is tried repeatedly
    run = daemon(uri, **scopes("orders", "users")).start()
    page = visit(run).page
    expect(page.locator("#verdict")).to_contain_text("All 2 scopes are followed")

    mortal.stop_member(0, signal.SIGKILL)
    head = page.locator("#verdict-head")
    expect(head).to_have_text(
        re.compile(r"^Server unreachable since \d\d:\d\d:\d\d$"), timeout=90_000
    )
    expect(page.locator("#verdict")).to_have_class("notice bad")
    expect(page.locator("#behind")).not_to_have_text("0 s")
    expect(page.locator("#followed-note")).to_have_text("no answer from the server")
    expect(page).to_have_title(re.compile("^■ Server unreachable since"))
    expect(page.locator("#trouble")).to_be_hidden()
    page.evaluate(NOTE_TEXTS, "#verdict-head, #verdict-what, #followed, #scope-list .chip")
    first = run.status()["restarts"]
    updated = page.locator("#updated")
    for _ in range(3):
        expect(updated).not_to_have_text(updated.inner_text())
    assert run.status()["restarts"] > first, "it was tried again meanwhile"
    assert sorted(page.evaluate("[...texts]")) == sorted(
        [
            head.inner_text(),
            "No scope is followed. Each continues by itself when the server answers.",
            "0 / 2",
            "no server",
        ]
    )
    behind = page.locator("#behind")
    expect(behind).not_to_have_text(behind.inner_text())  # it grows

    mortal.start()
    expect(page.locator("#verdict")).to_contain_text("All 2 scopes are followed", timeout=90_000)
    expect(behind).to_have_text("0 s")
    page.close()  # before the service stops, which the page would report
    assert run.stop() == 0


def test_an_outage_of_a_destination_is_shown_with_its_handler_cause_beginning_and_end(
    mongod: ReplicaSet, database: str, daemon: Make, visit: Open
) -> None:
    run = daemon(
        mongod.uri,
        scopes=[{"name": "orders", "database": database, "max_await_time_ms": 200}],
        handlers={
            "file": {"type": "jsonl", "path": "events.jsonl"},
            "stock": {"type": "python", "target": "stock:handle"},
        },
        routes=[{"scope": "orders", "handlers": ["file", "stock"]}],
    )
    (run.directory / "stock.py").write_text(AWAY)
    page = visit(run.start(), 390).page
    expect(page.locator("#trouble")).to_be_hidden()
    with mongod.client() as client:
        client[database].orders.insert_one({"_id": 1})
    chip, trouble = page.locator("#scope-list .chip"), page.locator("#trouble-list > li")
    expect(chip).to_have_text("waiting")
    expect(page.locator("#verdict")).to_have_class("notice warn")
    expect(page.locator("#verdict-head")).to_have_text(
        "The scope is followed, a destination does not answer"
    )
    expect(trouble.locator(".chip")).to_have_text("destination down")
    expect(trouble).to_contain_text(
        re.compile(
            r"Handler 'stock': its destination does not answer since \d\d:\d\d:\d\d \(\d+ s ago\): "
            r".*the shop's <b>stock</b> service is closed.* nothing is lost"
        )
    )
    page.locator("#scope-list h3 button").click()
    handlers = page.locator("tbody tr")
    down = handlers.filter(has_text="stock").locator("td").last
    expect(down).to_have_text(re.compile(r"^down since \d\d:\d\d:\d\d$"))
    expect(handlers.filter(has_text="file").locator("td").last).to_have_text("answers")
    for width in (1400, 800, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate("document.documentElement.scrollHeight") < 2350, "with the scope opened"

    (run.directory / "back").touch()
    expect(chip).to_have_text("caught up")
    expect(page.locator("#trouble")).to_be_hidden()
    expect(down).to_have_text("answers")
    expect(page.locator("#verdict-head")).to_have_text("The scope is followed")
