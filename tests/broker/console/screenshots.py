"""Screenshots for ``docs/broker/console.md``: ``python -m tests.broker.console.screenshots``.

A broker with some traffic runs for a while, so that there is a history.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import shutil
from pathlib import Path
from typing import Any

from playwright.async_api import async_playwright

import ferrymq
from ferrymq import Message
from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer
from tests.broker.console.conftest import OPTIONS, opened

DOCS = Path(__file__).parents[3] / "docs" / "broker"
SECONDS = 100
SETTINGS = {
    "listener": [{"url": "amqp://127.0.0.1:0"}],
    "http": {"url": "http://127.0.0.1:0"},
    "queue": [
        {"name": "orders", "dead-letter": "orders.dead", "delivery-limit": 3},
        {"name": "orders.dead"},
        {"name": "invoices", "dead-letter": "orders.dead"},
        {"name": "mail"},
    ],
    "topic": [{"name": "news"}],
    "stream": [{"name": "log"}],
}


async def trade(url: str) -> None:
    """Clients that send in waves, and a worker that is slower for a while."""
    async with (
        ferrymq.connect(url, container_id="shop") as shop,
        ferrymq.connect(url, container_id="kitchen") as kitchen,
        shop.sender("orders", name="till") as till,
        shop.sender("log", name="log") as log,
        shop.sender("invoices", name="bills") as bills,
        kitchen.receiver("orders", name="cook", credit=20) as cook,
        kitchen.receiver("invoices", name="accountant", credit=5) as accountant,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(work(cook))
        for number in itertools.count():
            body = {"id": number, "dish": "tea", "table": number % 12}
            properties = {"region": "eu", "priority": number % 3}
            message = Message(
                body=body,
                subject="order",
                message_id=f"order-{number}",
                application_properties=properties,
            )
            await till.send(message)
            await log.send(Message(body="a line"))
            if number % 40 == 0:
                await bills.send(Message(body="a bill", subject="bill"))
                await (await accountant.receive(timeout=10)).reject("app:bad", "no such table")
            await asyncio.sleep(0.02 + 0.015 * math.sin(number / 150))


async def work(cook: Any) -> None:
    async for delivery in cook:
        if delivery.message.body["id"] % 97 == 0:
            await delivery.reject("app:burnt", "the dish is burnt")
        else:
            await delivery.accept()
        await asyncio.sleep(0.022)


async def main() -> None:
    chromium = shutil.which("chromium")
    assert chromium is not None
    async with BrokerServer(Config.model_validate(SETTINGS)) as server, async_playwright() as tool:
        trading = asyncio.create_task(trade(server.url))
        await asyncio.sleep(SECONDS)
        browser = await tool.chromium.launch(executable_path=chromium, args=OPTIONS)
        size = {"width": 1100, "height": 720}
        async with opened(server, browser, viewport=size) as console:
            for name, view in (
                ("overview", ("overview",)),
                ("queue", ("node", "queue", "orders")),
                ("message", ("messages", "queue", "orders")),
                ("dead-letters", ("dead-letters", "orders.dead")),
                ("connection", ("connection", "2")),
                ("frames", ("trace", "1")),
            ):
                page = await console.show(*view)
                if name == "message":
                    await page.locator("summary").first.click()
                await asyncio.sleep(3)
                await page.screenshot(path=DOCS / f"console-{name}.png")
        phone = {"width": 360, "height": 780}
        async with opened(server, browser, viewport=phone, color_scheme="dark") as console:
            page = await console.show("overview")
            await asyncio.sleep(1)
            await page.screenshot(path=DOCS / "console-phone.png")
        await browser.close()
        trading.cancel()


if __name__ == "__main__":
    asyncio.run(main())
