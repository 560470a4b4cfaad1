"""The page in a total outage: it says so and since when, and does not flicker."""

import re
import signal

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.daemon import Make, scopes
from tests.mongod import ReplicaSet
from tests.orders import QUICK

pytestmark = pytest.mark.integration

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
