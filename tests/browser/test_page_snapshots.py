"""Snapshots on the page: bars with rate and remaining time, and the buttons beside them."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import SCHEMES, WAIT_MS, Open
from tests.browser.test_page_access import fits
from tests.daemon import Daemon, Make, until
from tests.mongod import ReplicaSet

pytestmark = pytest.mark.integration

TOKEN = "right-0123456789"


@pytest.fixture
def run(mongod: ReplicaSet, database: str, daemon: Make) -> Daemon:
    """A database of which three collections are read slowly; changing anything needs a token."""
    with mongod.client() as client:
        for name, count in (("orders", 3000), ("customers", 900), ("x" * 100, 20)):
            client[database][name].insert_many([{"_id": n} for n in range(count)])
    snapshot = {"mode": "initial", "documents_per_second": 50, "chunk_documents": 10}
    scope = {"name": "shop", "database": database, "max_await_time_ms": 200, "snapshot": snapshot}
    run = daemon(
        mongod.uri,
        http={"port": 0, "token": TOKEN},
        scopes=[scope],
        routes=[{"scope": "shop", "handlers": ["file"]}],
    ).start()
    until(lambda: state(run)["seconds_left"], "the first rows")
    return run


def state(run: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = run.status("shop")["snapshot"]
    return found


def part(page: Page, name: str) -> Any:
    return page.locator(".parts > li", has_text=f".{name}")


def test_a_snapshot_is_watched_paused_resumed_and_cancelled(run: Daemon, visit: Open) -> None:
    page = visit(run).page
    section = page.locator("#copies")
    expect(section.locator(".chip")).to_have_text("reading")
    expect(section.locator(".head")).to_contain_text(re.compile(r"initial · [\d,]+ of about 3,920"))
    expect(part(page, "orders")).to_contain_text(
        re.compile(r"[\d,]+ of about 3,000 · [\d.]+ /s · \d+ (min|s)")
    )
    bar = part(page, "orders").get_by_role("progressbar")
    expect(bar).to_have_accessible_name(re.compile(r"\.orders read"))
    before = bar.evaluate("(e) => e.position")
    until(lambda: bar.evaluate("(e) => e.position") > before, "the bar grows")
    expect(part(page, "x" * 100)).to_contain_text("20 documents")

    expect(page.locator("#rate-note")).to_have_text("0 since the start")  # rows are no changes
    expect(page.locator("#rate")).to_have_text("0 /s", timeout=WAIT_MS)
    expect(page.locator(".facts").last).to_contain_text(
        re.compile(r"0 changes and [\d,]+ documents of snapshots since the start")
    )

    pause = section.get_by_role("button", name="Pause the snapshot of scope shop")
    expect(pause).to_be_hidden()
    page.locator("#sign").click()
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.locator("#ask")).to_be_hidden()
    page.locator("#sign").click()
    page.locator("#token").fill(TOKEN)
    page.keyboard.press("Enter")
    pause.click()
    expect(page.locator("#sure")).to_contain_text("The chunk that is being read is delivered")
    page.locator("#sure-ok").click()
    expect(page.locator("#said-what")).to_contain_text("pause of its snapshot is accepted")
    expect(section.locator(".chip")).to_have_text("paused")
    expect(section).to_contain_text("paused by an operator")
    expect(part(page, "orders")).not_to_contain_text("/s")
    section.get_by_role("button", name="Resume the snapshot of scope shop").click()
    page.locator("#sure-ok").click()
    expect(section.locator(".chip")).to_have_text("reading")  # the token is asked for once
    kept = page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]")
    assert kept == [0, 0, ""], "in memory only"

    cancel = section.get_by_role("button", name="Cancel the snapshot of scope shop")
    cancel.click()
    expect(page.locator("#sure")).to_contain_text("Cancel the snapshot of scope shop?")
    page.keyboard.press("Enter")  # the default choice changes nothing
    expect(page.locator("#sure")).to_be_hidden()
    assert state(run)["state"] == "reading"
    cancel.click()
    page.get_by_role("button", name="Cancel the snapshot", exact=True).click()
    expect(section.locator(".chip")).to_have_text("cancelled")
    expect(cancel).to_be_hidden()
    expect(page.locator(".facts").last).to_contain_text("cancelled")
    page.reload()
    expect(page.locator("#scopes")).to_be_visible()
    expect(section).to_be_hidden()


def test_the_bars_of_a_snapshot_fit_and_are_legible(run: Daemon, visit: Open) -> None:
    for width in (1280, 360):
        page = visit(run, width).page
        expect(part(page, "orders")).to_contain_text("/s")
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            fits(page, width)
        page.close()
