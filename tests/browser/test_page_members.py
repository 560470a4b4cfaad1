"""Two processes share a scope; the page is that of the one that stands by and then follows it."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.browser.test_page_access import fits
from tests.orders import Orders
from tests.replicas import STEADY_SECONDS, Replicas

pytestmark = pytest.mark.integration


def test_members_and_owners_are_shown(orders: Orders, tmp_path: Path, visit: Open) -> None:
    store = {"type": "sqlite", "path": str(tmp_path / "shared.db")}
    replicas = Replicas(orders, store, lease=STEADY_SECONDS)
    one, two = replicas.start("one", "two")
    replicas.until_owner(one)
    page = visit(two, 360).page
    verdict, members = page.locator("#verdict"), page.locator("#member-list > li")
    expect(verdict).to_contain_text("Standing by: other members follow the scope")
    expect(verdict).to_have_class("notice ok")
    expect(page.locator("#followed")).to_have_text("0 / 1")
    expect(page.locator("#followed-note")).to_have_text("ready; 1 by other members")
    expect(members).to_contain_text(
        [re.compile("^onefollows 1 scope: orders · joined"), re.compile(r"^two \(this one\)stands")]
    )
    scope = page.locator("#scope-list > li")
    expect(scope.locator(".chip")).to_have_text("standby")
    expect(scope.locator("h3")).to_contain_text("followed by one")
    expect(scope.locator(".behind")).to_contain_text(re.compile(r"\d s"))
    scope.locator("h3 button").click()  # folded on a narrow screen
    expect(scope.locator(".facts").last).to_contain_text("Ownerone, epoch 1")
    fits(page, 360)

    assert one.stop() == 0
    expect(verdict).to_contain_text("The scope is followed")
    expect(members).to_have_count(1)
    expect(members).to_contain_text("follows 1 scope: orders")
    expect(scope.locator(".facts").last).to_contain_text("Ownertwo (this member), epoch 2")
    expect(scope.locator("h3")).not_to_contain_text("followed by")
    page.close()  # before the service stops, which the page would report
    replicas.stop()
