"""The four doors of the broker give one answer: AMQP, HTTP, the command line and the console."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio

import ferrymq
from ferrymq import Message
from ferrymq.errors import ManagementError
from ferrymq_broker.server import BrokerServer
from tests.broker.console.conftest import Console, config, opened, playwright
from tests.broker.http_api.conftest import Api

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.once]

expect: Any = playwright.expect
SECRET = "secret"
SETTINGS: dict[str, Any] = {
    "security": {"users": {"ada": SECRET, "bob": SECRET}},
    "rule": [
        {"who": ["user:ada"], "may": ["*"], "where": ["*"]},
        {"who": ["user:ada"], "may": ["manage"], "where": ["$management"]},
        {"who": ["user:bob"], "may": ["browse"], "where": ["orders"]},
    ],
}


class Doors:
    """Requests of one user by each of the four doors: AMQP, HTTP, command line, console."""

    def __init__(self, server: BrokerServer, user: str, console: Console) -> None:
        self.url = server.url.replace("//", f"//{user}:{SECRET}@")
        login = base64.b64encode(f"{user}:{SECRET}".encode()).decode()
        self.api = Api(server, f"Basic {login}")
        self.console = console
        self.user = user
        self.manager: Any = None

    async def open(self, stack: AsyncExitStack) -> None:
        """Log in everywhere."""
        connection = await stack.enter_async_context(
            ferrymq.connect(self.url, container_id=f"doors-{self.user}")
        )
        self.manager = await stack.enter_async_context(connection.management())
        stack.push_async_callback(self.api.close)
        self.console.expected = {401, 403, 404, 409}
        page = await self.console.show("overview")
        await page.get_by_label("User").fill(self.user)
        await page.get_by_label("Password").fill(SECRET)
        await page.get_by_role("button", name="Log in", exact=True).click()
        await expect(page.locator("#user")).to_have_text(self.user)

    async def command(self, *arguments: str) -> tuple[int, str, str]:
        """Run ``ferrymq admin``; return its status, output and errors."""
        command = [sys.executable, "-m", "ferrymq_broker", "admin", arguments[0]]
        process = await asyncio.create_subprocess_exec(
            *command, "--url", self.url, *arguments[1:], stdout=-1, stderr=-1
        )
        out, errors = await process.communicate()
        return process.returncode or 0, out.decode(), errors.decode()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[BrokerServer]:
    async with BrokerServer(config(**SETTINGS)) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def doors(server: BrokerServer, browser: Any) -> AsyncIterator[dict[str, Doors]]:
    """Ada, who manages the broker, and Bob, who may only look; a worker holds two messages."""
    async with AsyncExitStack() as stack:
        found = {}
        for user in ("ada", "bob"):
            console = await stack.enter_async_context(opened(server, browser))
            found[user] = Doors(server, user, console)
            await found[user].open(stack)
        worker = await stack.enter_async_context(
            ferrymq.connect(found["ada"].url, container_id="worker")
        )
        sender = await stack.enter_async_context(worker.sender("orders"))
        for number in range(5):
            await sender.send(Message(body=f"body {number}", subject=f"s{number}"))
        receiver = await stack.enter_async_context(
            worker.receiver("orders", name="hands", credit=2)
        )
        deliveries = [await receiver.receive(timeout=10) for _ in range(2)]
        yield found
        for delivery in deliveries:
            await delivery.release()


# What is asked: a type, the name of the entity, the view of the console with a row for it, and the
# attributes by the number of their cell.
SEEN = (
    ("queue", "orders", "nodes", {"available": 1, "acquired": 2, "consumers": 7, "producers": 8}),
    ("link", "hands", "connection", {"role": 1, "address": 2, "unsettled": 3, "credit": 4}),
)


@pytest.mark.parametrize("case", SEEN, ids=lambda case: case[0])
async def test_the_attributes(case: Any, doors: dict[str, Doors]) -> None:
    type, name, view, attributes = case
    at = doors["ada"]
    (found,) = [each async for each in at.manager.query(type) if each["name"] == name]
    identity = found["identity"]
    over_http = await at.api.ask("GET", f"{type}/{quote(identity, '')}")
    status, out, errors = await at.command("show", type, identity, "--json")
    assert status == 0, errors
    by_command = json.loads(out)
    await at.console.show(*([view, found["connection"]] if view == "connection" else [view]))
    for attribute, cell in attributes.items():
        shown = await at.console.cells(name).nth(cell).inner_text()
        answers = {str(each[attribute]) for each in (found, over_http, by_command)}
        assert answers | {shown} == {str(found[attribute])}, attribute


async def test_lists_have_the_same_entities(doors: dict[str, Doors]) -> None:
    for user, expected in (("ada", {"orders", "orders.dead"}), ("bob", {"orders"})):
        at = doors[user]
        over_amqp = {each["name"] async for each in at.manager.query("queue")}
        over_http = {each["name"] for each in (await at.api.ask("GET", "queue"))["items"]}
        _, out, _ = await at.command("list", "queue", "--json")
        page = await at.console.show("nodes")
        await expect(page.locator("tbody tr")).to_have_count(len(expected))
        shown = set(await page.locator("tbody th").all_inner_texts())
        by_command = {each["name"] for each in json.loads(out)}
        assert over_amqp == over_http == by_command == shown == expected


async def test_messages(doors: dict[str, Doors]) -> None:
    at = doors["bob"]
    over_amqp = [each.message.subject for each in await at.manager.peek("queue", "orders")]
    found = (await at.api.ask("POST", "queue/orders/peek", {}))["messages"]
    over_http = [each["message"][0]["value"]["subject"] for each in found]
    _, out, errors = await at.command("peek", "orders", "--json")
    by_command = [json.loads(line)["message"]["subject"] for line in out.splitlines()]
    page = await at.console.show("messages", "queue", "orders")
    await expect(page.get_by_text("5 messages.")).to_be_visible()
    texts = await page.locator("ol.messages summary").all_inner_texts()
    shown = [text.partition("subject ")[2] for text in texts]
    assert (
        over_amqp == over_http == by_command == shown == [f"s{each}" for each in range(5)]
    ), errors


# What is refused: the user, the operation, the entity, the words of the command line, and the
# button of the console.
REFUSED = (
    ("ada", "READ", "none", ("show", "queue", "none"), ""),
    ("bob", "PURGE", "orders", ("purge", "orders", "--yes"), "Purge"),
    ("bob", "DELETE", "orders", ("delete", "queue", "orders", "--yes"), "Delete"),
)
METHODS = {"READ": ("GET", ""), "PURGE": ("POST", "/purge"), "DELETE": ("DELETE", "")}


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case[0]}-{case[1]}")
async def test_a_refusal(case: Any, doors: dict[str, Doors]) -> None:
    user, operation, name, command, button = case
    at = doors[user]
    with pytest.raises(ManagementError) as refused:
        await at.manager.request(operation, "queue", name)
    reason, status = refused.value.description, refused.value.status
    method, end = METHODS[operation]
    body = {} if method == "POST" else None
    problem = await at.api.ask(method, f"queue/{name}{end}", body, status)
    assert problem["detail"] == reason
    code, out, errors = await at.command(*command)
    assert (code, out) == (1, "") and reason in errors
    page = await at.console.show("node", "queue", name)
    if button:
        await page.get_by_role("button", name=button).click()
        await at.console.confirm(button)
    await expect(page.locator("#status .problem")).to_have_text(reason)


async def test_a_change_is_seen_at_every_door(doors: dict[str, Doors]) -> None:
    at = doors["ada"]
    await at.manager.request("CREATE", "queue", "changed", {"max-length": 1})
    await at.api.ask("PATCH", "queue/changed", {"max-length": 2})
    assert (await at.manager.read("queue", "changed"))["max-length"] == 2
    status, _, errors = await at.command("update", "queue", "changed", "max-length=3")
    assert status == 0, errors
    page = await at.console.show("node", "queue", "changed")
    value = page.locator("dt", has_text="max-length").locator("+ dd")
    await expect(value).to_have_text("3")
    await page.get_by_role("button", name="Delete").click()
    await at.console.confirm("Delete")
    await expect(page.get_by_text("changed: deleted")).to_be_visible()
    await at.api.ask("GET", "queue/changed", status=404)
