"""The login of the console: as for AMQP, with the rights of the rules."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio

from ferrymq_broker.server import BrokerServer
from tests.broker.console.conftest import config, opened, playwright

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.once]

expect: Any = playwright.expect
SECRET = "Tr0ub4dor & 3 ß"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> Any:
    """A broker with two users."""
    settings = config(
        security={"users": {"ada": SECRET, "bob": SECRET}},
        rule=[
            {"who": ["user:ada"], "may": ["*"], "where": ["*"]},
            {"who": ["user:ada"], "may": ["manage"], "where": ["$management"]},
            {"who": ["user:bob"], "may": ["browse"], "where": ["orders"]},
        ],
    )
    async with BrokerServer(settings) as server:
        yield server


async def log_in(page: Any, name: str, password: str) -> None:
    await page.get_by_label("User").fill(name)
    await page.get_by_label("Password").fill(password)
    await page.get_by_role("button", name="Log in", exact=True).click()


async def test_a_login_lasts_until_it_is_ended(server: BrokerServer, browser: Any) -> None:
    async with opened(server, browser) as console:
        console.expected = {401}
        page = await console.show("nodes")
        await expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        await expect(page.get_by_label("User")).to_be_focused()
        await expect(page.get_by_role("navigation")).to_have_count(0)
        await log_in(page, "ada", "wrong")
        await expect(page.get_by_role("alert")).to_have_text("The broker refused this login.")
        await log_in(page, "ada", SECRET)
        # The view that the address names.
        await expect(page.get_by_role("link", name="orders", exact=True)).to_be_visible()
        await expect(page.locator("#user")).to_have_text("ada")
        await page.reload()
        await expect(page.get_by_role("link", name="orders", exact=True)).to_be_visible()
        # Another tab has to log in itself.
        other = await page.context.new_page()
        await other.goto(console.url)
        await expect(other.get_by_role("heading", name="Log in")).to_be_visible()
        await page.get_by_role("button", name="Log out").click()
        await expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        assert await page.evaluate("sessionStorage.length + localStorage.length") == 0


async def test_a_user_sees_what_the_rules_allow(server: BrokerServer, browser: Any) -> None:
    async with opened(server, browser) as console:
        console.expected = {401, 403}
        page = await console.show("overview")
        await log_in(page, "bob", SECRET)
        await expect(
            page.get_by_text("READ of broker 'broker' is not allowed to you")
        ).to_be_visible()
        await page.get_by_role("link", name="Nodes").click()
        await page.get_by_role("link", name="orders", exact=True).click()
        await page.get_by_role("button", name="Purge").click()
        await console.confirm("Purge")
        await expect(
            page.get_by_text("PURGE of queue 'orders' is not allowed to you")
        ).to_be_visible()
        await page.get_by_role("link", name="Messages").click()
        await expect(page.get_by_text("There are no messages.")).to_be_visible()
