"""The console with a keyboard, with a screen reader, in both colour schemes and on a phone."""

from __future__ import annotations

from typing import Any

import pytest

import ferrymq
from ferrymq import Message
from ferrymq_broker.server import BrokerServer
from tests.broker.console.conftest import Console, opened, playwright

axe = pytest.importorskip("axe_playwright_python.async_playwright")

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.once]

expect: Any = playwright.expect

VIEWS = (
    ("overview",),
    ("nodes",),
    ("node", "queue", "orders"),
    ("messages", "queue", "orders"),
    ("dead-letters",),
    ("dead-letters", "orders.dead"),
    ("connections",),
    ("connection", "1"),
    ("trace", "1"),
    ("access",),
    ("configuration",),
)
# The views with all colours.
COLOURFUL = ("overview", "dead-letters", "connection", "messages")
ALL = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    "resultTypes": ["violations"],
}
CONTRAST = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}


async def test_no_view_breaks_a_rule_or_is_wider_than_a_phone(
    server: BrokerServer, browser: Any, client: ferrymq.Connection
) -> None:
    async with client.sender("orders") as sender, client.receiver("orders") as receiver:
        await sender.send(Message(body="x"))
        await (await receiver.receive(timeout=10)).reject()
        await sender.send(Message(body="x" * 500, subject="a" * 200))
        size = {"width": 360, "height": 740}
        async with opened(server, browser, viewport=size) as console:
            for view in VIEWS:
                await check(console, view)
        await (await receiver.receive(timeout=10)).accept()


async def check(console: Console, view: tuple[str, ...]) -> None:
    # The number of a connection depends on the tests before.
    number = str(next(iter(console.server.connections)).handler.client.id)
    page = await console.show(*(number if part == "1" else part for part in view))
    await page.evaluate(
        "document.querySelectorAll('main details').forEach(each => each.open = true)"
    )
    assert await page.evaluate("document.documentElement.scrollWidth") <= 360, view
    for scheme, rules in (("light", ALL), ("dark", CONTRAST)):
        if scheme == "dark" and view[0] not in COLOURFUL:
            continue
        await page.emulate_media(color_scheme=scheme)
        found = await axe.Axe().run(page, options=rules)
        broken = [
            (each["id"], [node["html"] for node in each["nodes"]])
            for each in found.response["violations"]
        ]
        assert not broken, (view, scheme, broken)


async def test_everything_is_reached_by_the_keyboard(console: Console) -> None:
    page = await console.show("nodes")
    await expect(page.get_by_role("heading", level=1)).to_be_focused()
    # The first stop of the page.
    first = page.locator("a, button, input, select, summary, [tabindex='0']").first
    await expect(first).to_have_text("Skip to the content")
    await first.focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("main")).to_be_focused()
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="queues")).to_be_focused()
    link = page.get_by_role("link", name="orders", exact=True)
    for _ in range(20):
        if await link.evaluate("each => each === document.activeElement"):
            break
        await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("queue orders")
    await expect(page.get_by_role("heading", level=1)).to_be_focused()
    # A question takes the focus, and Escape is no.
    delete = page.get_by_role("button", name="Delete")
    await delete.focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog").get_by_role("button", name="Cancel")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(delete).to_be_focused()
    assert "orders" in console.server.broker.default.nodes


async def test_updates_keep_the_focus_and_can_be_paused(console: Console) -> None:
    await console.page.goto("about:blank")
    await console.page.clock.install()
    page = await console.show("nodes")
    console.server.broker.default.target("later")
    link = page.get_by_role("link", name="orders", exact=True)
    await link.focus()
    await page.clock.run_for(5000)
    await expect(page.get_by_role("link", name="later")).to_be_visible()
    await expect(link).to_be_focused()
    pause = page.get_by_role("button", name="Pause updates")
    await pause.click()
    await expect(pause).to_have_attribute("aria-pressed", "true")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await page.clock.run_for(60_000)
    assert len(asked) <= 1
