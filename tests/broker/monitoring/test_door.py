"""Who sees the figures of a broker that is not open to everybody."""

from __future__ import annotations

import base64
import logging
from collections.abc import AsyncIterator

import aiohttp
import pytest

from ferrymq_broker.broker import Broker
from ferrymq_broker.config import Config, Http, Listener, Security
from ferrymq_broker.config.access import AccessRule
from ferrymq_broker.connections.authentication import Authenticator, ClientTransport
from ferrymq_broker.monitoring.http import MonitoringServer
from ferrymq_broker.monitoring.metrics_auth import MetricsAuth
from ferrymq_broker.monitoring.readiness import Readiness
from ferrymq_broker.server import BrokerServer
from tests.broker.harness import Network
from tests.support.known_users import KnownUsers

SECRET = "Tr0ub4dor & 3"
METRICS = ("/metrics", "/metrics/nodes")


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


async def get(
    url: str, path: str, authorization: str | None = None
) -> tuple[int, str, aiohttp.ClientResponse]:
    headers = {} if authorization is None else {"Authorization": authorization}
    async with (
        aiohttp.ClientSession() as session,
        session.get(url + path, headers=headers) as response,
    ):
        return response.status, await response.text(), response


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """The monitoring listener of a broker with rules."""
    config = Config(
        listener=[Listener(url="amqp://127.0.0.1:0")],
        http=Http(url="http://127.0.0.1:0"),
        security=Security.model_validate({"users": {"watch": SECRET, "eve": SECRET}}),
        rule=[
            AccessRule(who=["user:watch"], may=["manage"], where=["$metrics"]),
            AccessRule(who=["user:eve"], may=["*"], where=["*"]),
        ],
    )
    async with BrokerServer(config) as server:
        assert server.monitoring is not None
        yield server.monitoring.url


async def test_health_is_for_everybody(url: str) -> None:
    for path in ("/livez", "/readyz"):
        assert (await get(url, path))[0] == 200
        assert (await get(url, path, basic("watch", "wrong")))[0] == 200


async def test_figures_are_for_who_may_see_them(url: str) -> None:
    for path in METRICS:
        status, text, _ = await get(url, path, basic("watch", SECRET))
        assert status == 200 and "# HELP" in text
        status, text, _ = await get(url, path, basic("eve", SECRET))
        assert status == 403 and "# HELP" not in text


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        basic("watch", "wrong"),
        basic("nobody", SECRET),
        basic("", SECRET),
        basic("watch\0", SECRET),
        "Basic",
        "Basic !!!",
        "Basic /////w==",
        "Basic " + base64.b64encode(b"watch").decode(),
        "Bearer x.y.z",
        "Negotiate abc",
        "Basic " + "A" * 8000,
    ],
)
async def test_everybody_else_is_asked_who_he_is(url: str, authorization: str | None) -> None:
    for path in METRICS:
        status, text, response = await get(url, path, authorization)
        assert status == 401 and "# HELP" not in text
        assert response.headers["WWW-Authenticate"].startswith("Basic ")


async def test_refusals_are_on_record_without_secrets(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await get(url, "/metrics", basic("watch", "not " + SECRET))
    await get(url, "/metrics", basic("eve", SECRET))
    events = [record.msg for record in caplog.records if record.name == "ferrymq.audit"]
    assert [(e["event"], e["user"]) for e in events] == [
        ("login-refused", "watch"),
        ("access-refused", "eve"),
    ]
    assert events[1]["via"] == "http"
    assert SECRET not in caplog.text
    assert base64.b64encode(SECRET.encode()).decode()[:12] not in caplog.text


class _Tls(KnownUsers):
    """Takes passwords only where nobody can read them, as brokers on the network do."""

    def mechanisms(self, transport: ClientTransport) -> list[str]:
        return super().mechanisms(transport) if transport.loopback else ["OAUTHBEARER"]


def _behind(broker: Broker, authenticator: Authenticator, loopback: bool) -> MonitoringServer:
    metrics_auth = MetricsAuth(
        broker, lambda transport: authenticator, loopback=loopback, named=not loopback
    )
    made = MonitoringServer(
        broker,
        "http://127.0.0.1:0",
        lambda: Readiness(True, ""),
        metrics_auth=metrics_auth,
        connections=5,
    )
    made.watch()
    return made


async def test_passwords_in_the_clear_are_refused_beyond_this_machine() -> None:
    users = _Tls({"watch": SECRET}, False, False)
    for loopback, status in ((True, 200), (False, 401)):
        server = _behind(Network().broker, users, loopback)
        await server.start()
        try:
            found, _, response = await get(server.url, "/metrics", basic("watch", SECRET))
            assert found == status
            if not loopback:
                assert "Basic" not in response.headers["WWW-Authenticate"]
        finally:
            await server.close()


async def test_beyond_this_machine_one_has_to_be_a_user_even_without_rules() -> None:
    server = _behind(Network().broker, KnownUsers({"u": SECRET}, False, False), False)
    await server.start()
    try:
        assert (await get(server.url, "/metrics"))[0] == 401
        assert (await get(server.url, "/metrics", basic("u", SECRET)))[0] == 200
        assert (await get(server.url, "/metrics", basic("u", "wrong")))[0] == 401
        assert (await get(server.url, "/livez"))[0] == 200
    finally:
        await server.close()


async def test_without_rules_everybody_on_this_machine_may_look() -> None:
    server = _behind(Network().broker, KnownUsers({"u": SECRET}, False, False), True)
    await server.start()
    try:
        assert (await get(server.url, "/metrics"))[0] == 200
    finally:
        await server.close()
