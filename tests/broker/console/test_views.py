"""Each view of the console shows what the broker has, and does what its buttons say."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import ferrymq
from ferrymq import Message
from ferrymq.errors import ConnectionClosed
from ferrymq_broker.config.load import LoadedConfig, load_config, load_with_places
from ferrymq_broker.replication.shared_journal import Member
from ferrymq_broker.server import BrokerServer
from ferrymq_broker.server.cluster_role import ClusterRole
from tests.broker.console.conftest import Console, config, opened, playwright
from tests.broker.replication.test_standby import LEADER, member_view

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.once]

expect: Any = playwright.expect


async def test_the_overview_has_alarms_and_figures(console: Console) -> None:
    page = await console.show("overview")
    await expect(page.get_by_role("heading", level=1)).to_be_focused()
    await expect(page.get_by_text("No alarms.")).to_be_visible()
    await expect(page.locator("dl.figures div").filter(has_text="Version")).to_contain_text("0.")
    assert await page.title() == "Overview – ferrymq"
    console.server.broker.alarms.add("memory")
    try:
        await console.show("overview")
        await expect(page.get_by_text("Alarm: memory")).to_be_visible()
    finally:
        console.server.broker.alarms.discard("memory")


async def test_the_overview_names_a_worker_that_does_not_answer(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console.server.managers["default"].find("broker"), "_missing", [1])
    page = await console.show("overview")
    await expect(page.get_by_text("No answer from worker 1.")).to_be_visible()


async def test_the_overview_of_a_member_has_the_cluster(browser: Any) -> None:
    view = member_view(LEADER)
    view.take_members([Member("one", "leader", "amqp://one.example:5671", 7, "1.0", 0.5)])
    role = ClusterRole("", view, lambda: "")
    async with (
        BrokerServer(config(), role=role) as server,
        opened(server, browser) as console,
    ):
        page = await console.show("overview")
        await expect(page.get_by_role("heading", name="Cluster")).to_be_visible()
        await expect(page.locator("dl.figures div").filter(has_text="Leader")).to_contain_text(
            "one"
        )
        await expect(page.get_by_role("cell", name="amqp://one.example:5671")).to_be_visible()


async def test_a_queue_is_made_looked_at_and_deleted(
    console: Console, client: ferrymq.Connection
) -> None:
    page = await console.show("nodes", "queue")
    await expect(page.get_by_role("columnheader", name="ready")).to_be_visible()
    await page.get_by_label("New queue").fill("new/one <b>")
    await page.get_by_role("button", name="Create").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("queue new/one <b>")
    async with client.sender("new/one <b>") as sender:
        for _ in range(3):
            await sender.send(Message(body="x"))
    await console.show("nodes", "queue")
    await expect(console.cells("new/one <b>").nth(1)).to_have_text("3")
    await page.get_by_role("link", name="new/one <b>").click()
    await page.get_by_role("button", name="Purge").click()
    await console.confirm("Purge")
    await expect(page.get_by_role("status").filter(has_text="3 messages dropped")).to_be_visible()
    await page.get_by_role("button", name="Delete").click()
    await console.confirm("Cancel")
    await page.get_by_role("button", name="Delete").click()
    await console.confirm("Delete")
    await expect(page.get_by_text("new/one <b>: deleted")).to_be_visible()
    await expect(page.get_by_role("link", name="new/one")).to_have_count(0)


async def test_lists_come_in_pages(console: Console) -> None:
    space = console.server.broker.default
    for number in range(101):
        space.create(f"many.{number:03}", console.server.broker.default.nodes["orders"].policy)
    try:
        page = await console.show("nodes")
        await expect(page.get_by_role("row")).to_have_count(101)
        await page.get_by_role("button", name="Next page").click()
        await expect(page.get_by_role("button", name="Next page")).to_be_disabled()
        await expect(page.get_by_role("row")).to_have_count(4)
    finally:
        for number in range(101):
            space.remove(space.nodes[f"many.{number:03}"])


async def test_messages_are_shown_with_their_sections(
    console: Console, client: ferrymq.Connection
) -> None:
    async with client.sender("browsed") as sender:
        await sender.send(
            Message(
                body={"id": 1},
                subject="<img src=x onerror=alert(1)>",
                application_properties={"region": "eu"},
            )
        )
        await sender.send(Message(body=b"\x00\xff binary"))
    page = await console.show("messages", "queue", "browsed")
    await expect(page.get_by_text("2 messages.")).to_be_visible()
    await page.get_by_text("subject <img").click()
    for words in ("properties", "application-properties", "region", "amqp-value", '"id": 1'):
        await expect(page.get_by_text(words, exact=words != '"id": 1')).to_be_visible()
    await page.locator("summary").nth(1).click()
    await expect(page.get_by_text("00 ff 20 62 69 6e")).to_be_visible()
    await page.get_by_label("From sequence").fill("2")
    await page.get_by_role("button", name="Show").click()
    await expect(page.get_by_text("1 messages.")).to_be_visible()


async def test_dead_letters_go_back(console: Console, client: ferrymq.Connection) -> None:
    async with client.sender("orders") as sender, client.receiver("orders") as receiver:
        for _ in range(2):
            await sender.send(Message(body="x"))
            await (await receiver.receive(timeout=10)).reject("app:bad", "no such item")
    page = await console.show("dead-letters")
    await expect(console.cells("orders.dead").nth(2)).to_have_text("orders")
    await page.get_by_role("link", name="orders.dead").click()
    row = console.cells("rejected")
    await expect(row.nth(1)).to_have_text("orders")
    await expect(row.nth(2)).to_have_text("2")
    await page.get_by_role("button", name="Re-queue rejected of orders").click()
    await console.confirm("Re-queue")
    await expect(page.get_by_text("requeued 2.")).to_be_visible()
    await expect(page.get_by_text("There are no dead letters.")).to_be_visible()
    async with client.receiver("orders") as receiver:
        for _ in range(2):
            await (await receiver.receive(timeout=10)).accept()


async def test_connections_and_links_say_what_they_hold(
    console: Console, client: ferrymq.Connection
) -> None:
    async with (
        client.sender("held") as sender,
        client.receiver("held", name="worker", credit=4) as receiver,
    ):
        for _ in range(3):
            await sender.send(Message(body="x"))
        await receiver.receive(timeout=10)
        page = await console.show("connections")
        await page.get_by_role("link", name="shop").click()
        row = console.cells("worker")
        await expect(row.nth(1)).to_have_text("receiver")
        await expect(row.nth(2)).to_have_text("held")
        await expect(row.nth(3)).to_have_text("3")
        await row.nth(2).get_by_role("link").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("queue held")
        await page.go_back()
        await page.get_by_role("button", name="Detach worker").click()
        await console.confirm("Detach")
        await expect(page.get_by_text("The link worker is detached.")).to_be_visible()
    other = await asyncio.wait_for(_connected(console.server.url), 20)
    await console.show("connections")
    await page.get_by_role("link", name="other").click()
    await page.get_by_role("button", name="Close the connection").click()
    await console.confirm("Close")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Connections")
    with pytest.raises(ConnectionClosed, match="closed in the console"):
        await other.wait_closed(timeout=20)


async def _connected(url: str) -> ferrymq.Connection:
    return await ferrymq.connect(url, container_id="other", reconnect=False)


async def test_the_frames_of_a_connection(console: Console, client: ferrymq.Connection) -> None:
    page = await console.show("connections")
    await page.get_by_role("link", name="shop").click()
    await page.get_by_role("link", name="Trace its frames").click()
    log = page.get_by_role("log")
    await expect(page.get_by_role("heading", level=1)).to_contain_text("Frames of connection")
    await page.locator("main:not([aria-busy])").wait_for()
    async with client.sender("traced", name="watched") as sender:
        await sender.send(Message(body="hidden", subject="seen"))
    await expect(log).to_contain_text("attach(name='watched'")
    await expect(log).to_contain_text("properties(subject='seen')")
    await expect(log).not_to_contain_text("hidden")
    await page.get_by_label("Only lines with").fill("<- ")
    await expect(log).not_to_contain_text("->")
    console.expected = {404}
    await client.close()
    await expect(page.get_by_text("The connection has ended.")).to_be_visible()
    await console.show("overview")
    console.expected = set()


async def test_a_user_and_a_rule_come_and_go(browser: Any, tmp_path: Path) -> None:
    security = {
        "users": {"root": "secret"},
        "users-file": str(tmp_path / "users.json"),
        "rules-file": str(tmp_path / "rules.json"),
    }
    (tmp_path / "users.json").write_text('{"format": 1, "users": {}}')
    rule = [
        {"who": ["user:root"], "may": ["*"], "where": ["*"]},
        {"who": ["user:root"], "may": ["manage"], "where": ["$management"]},
    ]
    async with (
        BrokerServer(config(security=security, rule=rule)) as server,
        opened(server, browser) as console,
    ):
        console.expected = {401, 409}
        page = await console.show("access")
        await page.get_by_label("User").fill("root")
        await page.get_by_label("Password", exact=True).fill("secret")
        await page.get_by_role("button", name="Log in", exact=True).click()
        await expect(console.cells("root").nth(3)).to_have_text("configuration")
        await page.get_by_text("Add a user").first.click()
        await page.get_by_label("Name", exact=True).first.fill("ada")
        await page.get_by_label("Password", exact=True).fill("hunter2")
        await page.get_by_label("Groups", exact=True).fill("staff, cooks")
        await page.get_by_role("button", name="Add a user").click()
        await expect(console.cells("ada").nth(1)).to_have_text("cooks, staff")
        await page.get_by_text("Add a rule").first.click()
        await page.get_by_label("Name", exact=True).last.fill("cooks")
        await page.get_by_label("Who", exact=True).fill("group:cooks")
        await page.get_by_label("May", exact=True).fill("send, receive")
        await page.get_by_label("Where", exact=True).fill("orders")
        await page.get_by_role("button", name="Add a rule").click()
        await expect(console.cells("cooks").nth(3)).to_have_text("send, receive")
        assert "hunter2" not in await page.content()
        for name, verb in (("cooks", "rule"), ("ada", "user")):
            await page.get_by_role("button", name=f"Delete {name}").click()
            await console.confirm("Delete")
            await expect(page.get_by_text(f"The {verb} {name} is deleted.")).to_be_visible()
        await expect(page.get_by_role("rowheader", name="ada")).to_have_count(0)


async def test_the_configuration_and_its_file(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    text = """
        [[listener]]
        url = "amqp://127.0.0.1:0"
        [http]
        url = "http://127.0.0.1:0"
        [limits]
        idle-time-out = {}
        [[queue]]
        name = "orders"
        max-length = {}
    """
    file.write_text(text.format(60, 5))
    loaded = load_config(file)
    async with (
        BrokerServer(loaded, reread=lambda: LoadedConfig(file, *load_with_places(file))) as server,
        opened(server, browser) as console,
    ):
        page = await console.show("configuration")
        await expect(page.get_by_role("region", name="Configuration")).to_contain_text("orders")
        await expect(page.get_by_text("broker.toml")).to_be_visible()
        await expect(page.get_by_text("There are none.")).to_be_visible()
        file.write_text(text.format(30, 6))
        await page.get_by_role("button", name="Compare again").click()
        row = console.cells("queue[orders].max-length")
        await expect(row.nth(1)).to_have_text("5")
        await expect(row.nth(2)).to_have_text("6")
        await expect(row.nth(3)).to_have_text("applies it")
        await page.get_by_role("button", name="Reload the file").click()
        await console.confirm("Reload")
        await expect(page.get_by_role("status").filter(has_text="settings applied")).to_be_visible()
        await expect(page.get_by_text("There are none.")).to_be_visible()
        assert server.broker.default.nodes["orders"].policy.max_length == 6
        file.write_text("[limits]\nnonsense = 1\n")
        await page.get_by_role("button", name="Compare again").click()
        await expect(page.get_by_text("nonsense")).to_be_visible()
        await expect(page.get_by_role("button", name="Reload the file")).to_be_disabled()
