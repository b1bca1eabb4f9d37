"""The console in a real browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio

import ferrymq
from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer

playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# Without a sandbox, because in a container there may be none; the pages are our own.
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Any]:
    if CHROMIUM is None:
        pytest.skip("there is no chromium")
    async with playwright.async_playwright() as started:
        browser = await started.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        await browser.close()


# Goes to a view as a link does, and waits until the page has begun to show it.
_GO = """view => new Promise(done => {
    window.addEventListener("hashchange", done, { once: true });
    location.hash = view;
})"""


class Console:
    """A page of the console of a broker. It fails at the end if the page did something that it
    should not: an error, or a request to another place than the broker."""

    def __init__(self, server: BrokerServer, page: Any) -> None:
        assert server.monitoring is not None
        self.server = server
        self.page = page
        self.url = f"{server.monitoring.url}/console/"
        self.wrong: list[str] = []
        # The statuses that a test expects: the browser reports them as errors.
        self.expected: set[int] = set()
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("console", self._note)
        page.on("request", self._look)

    def _note(self, said: Any) -> None:
        if said.type != "error":
            return
        if not any(f"status of {status}" in said.text for status in self.expected):
            self.wrong.append(f"console: {said.text}")

    def _look(self, request: Any) -> None:
        assert self.server.monitoring is not None
        if not request.url.startswith((self.server.monitoring.url, "data:")):
            self.wrong.append(f"request: {request.url}")

    async def show(self, *path: str) -> Any:
        """Go to a view, and return the page when it has its figures."""
        view = "#/" + "/".join(quote(part, "") for part in path)
        page = self.page
        if page.url.startswith(self.url) and page.url != self.url + view:
            await page.evaluate(_GO, view)
        else:
            await page.goto("about:blank")
            await page.goto(self.url + view)
        await page.locator("main:not([aria-busy]) h1").wait_for()
        return page

    def cells(self, row: str) -> Any:
        """The cells of the row of a table, by the name in its first cell."""
        named = self.page.get_by_role("rowheader", name=row, exact=True)
        return self.page.get_by_role("row").filter(has=named).locator("th, td")

    async def confirm(self, verb: str) -> None:
        await self.page.get_by_role("dialog").get_by_role("button", name=verb).click()


@asynccontextmanager
async def opened(server: BrokerServer, browser: Any, **more: Any) -> AsyncIterator[Console]:
    """A page of its own, without what other pages have kept."""
    options = {"viewport": {"width": 1200, "height": 800}, "reduced_motion": "reduce", **more}
    context = await browser.new_context(**options)
    context.set_default_timeout(20_000)
    console = Console(server, await context.new_page())
    try:
        yield console
        assert not console.wrong
        assert await context.cookies() == []
    finally:
        await context.close()


def config(**more: object) -> Config:
    return Config.model_validate(
        {
            "listener": [{"url": "amqp://127.0.0.1:0"}],
            "http": {"url": "http://127.0.0.1:0"},
            "queue": [
                {"name": "orders", "dead-letter": "orders.dead", "max-length": 100},
                {"name": "orders.dead"},
            ],
            **more,
        }
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[BrokerServer]:
    """A broker without users."""
    async with BrokerServer(config()) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def window(server: BrokerServer, browser: Any) -> AsyncIterator[Console]:
    async with opened(server, browser) as console:
        yield console


@pytest_asyncio.fixture(loop_scope="module")
async def console(window: Console) -> AsyncIterator[Console]:
    """The page that the tests of a module share."""
    window.wrong.clear()
    window.expected.clear()
    yield window
    assert not window.wrong


@pytest_asyncio.fixture(loop_scope="module")
async def client(server: BrokerServer) -> AsyncIterator[ferrymq.Connection]:
    """A client of the broker."""
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(ferrymq.connect(server.url, container_id="shop"))
