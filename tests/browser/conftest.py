"""The status page in a real browser, served by a real service."""

from collections.abc import Callable, Iterator
from typing import Literal

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from tests.daemon import Daemon
from tests.packages import require_installed

WAIT_MS = 60_000
expect.set_options(timeout=WAIT_MS)

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""Chromium connects only to the page's server, and needs no privileges to start."""


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One browser for all tests of the page; each page has a profile of its own.

    Playwright keeps an event loop in this thread, so no other test may run one here meanwhile:
    pytest closes it before a test of another directory.
    """
    path = require_installed("chromium", "fonts-dejavu-core")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


SOONER = """
((later) => {
  window.setTimeout = (call, ms) => later(call, Math.min(ms, 300));
})(window.setTimeout);
"""
"""Lets the page ask for news sooner than every two seconds, on which nothing depends."""

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


class Seen:
    """A page, with the errors that it reported and the foreign requests that it made."""

    def __init__(self, page: Page, origin: str) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.strangers: list[str] = []
        self._origin = origin
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        page.on("request", self._request)

    def was_refused(self) -> None:
        """The last of its errors is that of a request that the service refused."""
        refused = "Failed to load resource: the server responded with"
        assert self.complaints.pop().startswith(refused)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _request(self, request: Request) -> None:
        if not request.url.startswith((f"{self._origin}/", "data:")):
            self.strangers.append(request.url)


Open = Callable[..., Seen]


@pytest.fixture
def visit(browser: Browser) -> Iterator[Open]:
    """Opens a service's page; at the end there must be no errors and no foreign requests.

    A test that provokes errors removes them from the list.
    """
    opened: list[Seen] = []

    def visit(run: Daemon, width: int = 1280) -> Seen:
        page = browser.new_context(viewport={"width": width, "height": 900}).new_page()
        page.set_default_timeout(WAIT_MS)
        page.add_init_script(SOONER)
        seen = Seen(page, f"http://127.0.0.1:{run.port}")
        opened.append(seen)
        page.goto(f"http://127.0.0.1:{run.port}/")
        page.locator("#scope-list li").first.wait_for()
        return seen

    yield visit
    for seen in opened:
        seen.page.context.close()
    assert [seen.strangers for seen in opened] == [[] for _ in opened]
    assert [seen.complaints for seen in opened] == [[] for _ in opened]
