"""Access to the management API: logins, rights, the audit log, and pages from elsewhere."""

from __future__ import annotations

import base64
import logging
from collections.abc import AsyncIterator

import pytest

from tests.broker.http_api.conftest import Api, serving

SECRET = "Tr0ub4dor & 3"
JSON = {"Content-Type": "application/json"}
GUARDED = {
    "security": {"users": {"ada": SECRET, "bob": SECRET, "eve": SECRET}},
    "rule": [
        {"who": ["user:ada"], "may": ["*"], "where": ["*"]},
        {"who": ["user:ada"], "may": ["manage"], "where": ["$management"]},
        {"who": ["user:bob"], "may": ["browse"], "where": ["orders"]},
    ],
}


def basic(name: str, password: str = SECRET) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """A broker with rules, asked without a login."""
    async with serving(**GUARDED) as api:
        yield api


async def test_a_client_has_to_log_in(api: Api) -> None:
    for path in ("", "whoami", "queue", "queue/orders", "unicorn", "queue?virtual-host=none"):
        fields, problem = await api.whole("GET", path, status=401)
        assert fields["WWW-Authenticate"].startswith("Basic") and problem["status"] == 401
        await api.ask("GET", path, status=401, headers={"Authorization": basic("ada", "wrong")})
    # The description of the API says nothing about the broker.
    assert (await api.ask("GET", "openapi.json"))["openapi"] == "3.1.0"


async def test_each_sees_and_does_what_the_rules_allow(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ferrymq.audit")
    ada, bob, eve = ({"Authorization": basic(name)} for name in ("ada", "bob", "eve"))
    assert (await api.ask("GET", "whoami", headers=ada))["manages"] is True
    seen = await api.ask("GET", "whoami", headers=bob)
    assert seen["user"] == "bob" and seen["manages"] is False
    assert (await api.ask("GET", "whoami", headers=eve))["virtual-hosts"] == []
    await api.ask("POST", "queue/orders/peek", {}, headers=bob)
    for method, path, body in (
        ("POST", "queue/orders/purge", {}),
        ("DELETE", "queue/orders", None),
        ("PUT", "queue/new", {}),
        ("GET", "broker/broker", None),
    ):
        problem = await api.ask(method, path, body, 403, bob)
        assert "not allowed" in problem["detail"]
    assert (await api.ask("GET", "queue", headers=eve))["total"] == 0
    # A client without rights does not learn what exists.
    one = await api.ask("GET", "queue/orders", status=403, headers=eve)
    other = await api.ask("GET", "queue/none", status=403, headers=eve)
    assert one["detail"].replace("orders", "none") == other["detail"]
    await api.ask("PUT", "queue/new", {}, 201, ada)
    told = [record.getMessage() for record in caplog.records]
    assert any("bob" in each and "PURGE" in each and "http" in each for each in told)
    assert any("ada" in each and "CREATE" in each and "new" in each for each in told)
    assert not any(SECRET in each for each in told)


async def test_pages_of_other_origins_change_nothing() -> None:
    async with serving() as api:
        for origin in ("https://evil.example", "http://127.0.0.1:1", "null"):
            headers = {**JSON, "Origin": origin}
            await api.ask("POST", "queue/orders/purge", b"{}", 403, headers)
        # What a form can send without asking.
        form = {"Content-Type": "text/plain"}
        await api.ask("POST", "queue/orders/purge", b"{}", 415, form)
        # The browser asks first, whether it may send JSON, and gets no permission.
        asking = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
        fields, _ = await api.whole("OPTIONS", "queue/orders/purge", None, 403, asking)
        assert not any(field.lower().startswith("access-control") for field in fields)
        await api.ask("POST", "queue/orders/purge", b"{}", 200, {**JSON, "Origin": api.url})


async def test_a_name_that_leads_to_the_broker_is_not_enough_without_a_login() -> None:
    async with serving(security={"users": {"ada": SECRET}, "anonymous": True}) as api:
        port = api.url.rpartition(":")[2]
        evil = {"Host": f"evil.example:{port}"}
        await api.ask("GET", "queue", status=403, headers=evil)
        origin = {"Origin": f"http://evil.example:{port}", **evil, **JSON}
        await api.ask("POST", "queue/orders/purge", b"{}", 403, origin)
        for host in (f"localhost:{port}", f"[::1]:{port}", "shop.example"):
            await api.ask("GET", "queue", headers={"Host": host})
        # A page with the password is one that its user trusts.
        login = {"Authorization": basic("ada")}
        await api.ask("GET", "queue", headers={**evil, **login})
        await api.ask("POST", "queue/orders/purge", b"{}", headers={**origin, **login})
