"""Accessibility of the page: keyboard, narrow screens, both colour schemes, contrast, names."""

from itertools import pairwise
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import SCHEMES, Open
from tests.daemon import Daemon, scopes, until
from tests.scratch import MakeDirectory
from tests.scripted import ScriptedSet

pytestmark = pytest.mark.integration

LONG = "x" * 300 + " mongodb://db-0.a-rather-long-name-of-a-host.example.net:27017 " + "y" * 200

CONTRASTS = """
() => {
  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const light = ({ r, g, b }) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour.a === 1) return colour;
      if (colour.a !== 0) throw new Error(`half transparent: ${e.tagName}`);
    }
    throw new Error("no background");
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || !element.checkVisibility({ visibilityProperty: true })) continue;
    if (["SCRIPT", "STYLE", "NOSCRIPT"].includes(element.tagName)) continue;
    const [a, b] = [parse(getComputedStyle(element).color), behind(element)].map(light);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    found.push([ratio, element.className, element.textContent.slice(0, 40)]);
  }
  return found;
}
"""
"""The contrast of every visible text, by the formula of WCAG 2.2."""


@pytest.fixture(scope="module")
def busy(session_directory: MakeDirectory) -> Any:
    """Forty scopes: one halted with a long reason, one backing off, one with dead letters."""
    names = ["halted", "retried", "failing", *(f"tenant-{n:02}" for n in range(37))]
    sections = scopes(*names)
    sections["routes"][2]["handlers"] = ["broken"]
    with ScriptedSet() as server:
        server.fail(
            "aggregate",
            times=None,
            code=40324,
            message=LONG,
            where=lambda command: command.document["aggregate"] == "halted",
        )
        server.fail(
            "getMore",
            times=None,
            code=8000,
            message="the disk is full",
            where=lambda command: command.document["collection"] == "retried",
        )
        run = Daemon(
            session_directory("busy"),
            server.uri,
            **sections,
            supervisor={"first_seconds": 3600, "cap_seconds": 3600},
            delivery={"retry": {"attempts": 1}},
            handlers={
                "file": {"type": "jsonl", "path": "events.jsonl"},
                "broken": {"type": "python", "target": "broken:refuse"},
            },
        )
        (run.directory / "broken.py").write_text(
            "async def refuse(event):\n    raise ValueError('not this one')\n"
        )
        run.start(ready=False)
        run.port = until(lambda: run.logged("service.starting"), "the start")[0]["http_port"]
        for name, state in (("halted", "halted"), ("retried", "backing_off")):
            until(lambda n=name, s=state: run.status(n).get("state") == s, f"{name} {state}")
        until(lambda: run.status("tenant-36").get("state") == "caught_up", "the last scope")
        server.insert_many("shop.failing", range(3))
        server.insert_many("shop.tenant-00", range(200))
        until(lambda: run.status("failing")["handlers"]["broken"]["waiting"] == 3, "the count")
        yield run
        run.kill()


def shown(page: Page) -> Page:
    expect(page.locator("#verdict")).to_contain_text("1 of 40 scopes is halted")
    expect(page.locator("#scope-list > li")).to_have_count(40)
    return page


def fits(page: Page, width: int) -> None:
    """Nothing is wider than the screen, and every visible text has enough contrast."""
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert [found for found in page.evaluate(CONTRASTS) if found[0] < 4.5] == []


@pytest.mark.parametrize("width", [1280, 768, 360])
def test_the_page_fits_and_is_legible(busy: Daemon, visit: Open, width: int) -> None:
    page = shown(visit(busy, width).page)
    page.locator("#scope-list > li").first.get_by_role("button").click()
    expect(page.locator(".details").first).to_be_visible()
    assert len(page.evaluate(CONTRASTS)) > 200
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        fits(page, width)
    page.get_by_role("button", name="Seek scope halted").click()
    box = page.locator("#seek").bounding_box()
    assert box is not None
    assert (box["x"] >= 0, box["x"] + box["width"] <= width) == (True, True)


def focused(page: Page) -> str:
    name = page.evaluate(
        """() => {
          const element = document.activeElement, head = element.querySelector("b");
          if (element === document.body) return "";
          const [label] = element.labels ?? [];
          return element.ariaLabel || (label ?? head ?? element).textContent.trim();
        }"""
    )
    assert isinstance(name, str)
    return name


def test_the_keyboard_reaches_everything_in_visible_order(busy: Daemon, visit: Open) -> None:
    page = shown(visit(busy).page)
    order = []
    for _ in range(8):
        page.keyboard.press("Tab")
        order.append(focused(page))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
        assert float(outline.removesuffix("px")) >= 2, order[-1]
    assert order == [
        "Pause updates",
        "Restart scope halted",
        "Show dead letters of scope failing",
        "Filter scopes by name or state",
        "Reload configuration",
        "halted",
        "retried",
        "failing",
    ]
    button = page.locator("#scope-list h3 button").nth(2)
    expect(button).to_have_attribute("aria-expanded", "false")
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-expanded", "true")
    expect(page.locator(".details").nth(2)).to_be_visible()
    # The update every two seconds does not take the focus away.
    updated = page.locator("#updated").inner_text()
    expect(page.locator("#updated")).not_to_have_text(updated)
    assert focused(page) == "failing"
    page.keyboard.press("Space")
    expect(page.locator(".details").nth(2)).to_be_hidden()


def test_everything_on_the_page_has_a_name(busy: Daemon, visit: Open) -> None:
    """The first checks of axe: names, labels, one h1, headings in order, unique ids."""
    page = shown(visit(busy).page)
    page.locator("#scope-list h3 button").first.click()
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.locator("h1").count() == 1
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('button, input, a, section, dialog')]
        .filter((e) => e.checkVisibility())
        .filter((e) => !(e.ariaLabel || e.textContent.trim()
          || document.getElementById(e.getAttribute('aria-labelledby'))))
        .map((e) => e.outerHTML.slice(0, 80))"""
    )
    assert nameless == []
    levels = page.evaluate(
        "[...document.querySelectorAll('h1,h2,h3,h4')].filter((e) => e.checkVisibility())"
        ".map((e) => Number(e.tagName[1]))"
    )
    assert levels[0] == 1
    assert all(behind <= before + 1 for before, behind in pairwise(levels))
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))
    dangling = page.evaluate(
        "[...document.querySelectorAll('[aria-controls]')]"
        ".filter((e) => !document.getElementById(e.getAttribute('aria-controls'))).length"
    )
    assert dangling == 0
