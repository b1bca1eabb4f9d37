"""Plain HTTP requests to the administration."""

from __future__ import annotations

import base64
import hmac
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote
from xml.etree.ElementTree import fromstring

import aiohttp
import pytest

from ferrymq_broker.config import Config
from ferrymq_broker.config.listeners import Listener
from ferrymq_broker.config.model import Store
from ferrymq_broker.config.security import Security
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.server import BrokerServer
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_servicebus.administration.http_api import make_handler
from ferrymq_servicebus.administration.paths import AdministrationPath, parse_path
from ferrymq_servicebus.durations import FOREVER, write_duration

ATOM = "{http://www.w3.org/2005/Atom}"
SB = "{http://schemas.microsoft.com/netservices/2010/10/servicebus/connect}"
VERSION = "api-version=2021-05"


def server_with(**security: object) -> BrokerServer:
    config = Config(
        listener=[Listener(url="any://127.0.0.1:0"), Listener(url="any://127.0.0.1:0")],
        security=Security.model_validate(security),
    )
    server = BrokerServer(config)
    server.tables = replace(server.tables, http_handlers={"": make_handler})
    return server


@pytest.fixture
async def server() -> AsyncIterator[BrokerServer]:
    async with server_with() as server:
        yield server


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def entry(kind: str = "QueueDescription", inside: str = "") -> str:
    return (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
        f'<{kind} xmlns="{SB[1:-1]}" xmlns:i="http://www.w3.org/2001/XMLSchema-instance">'
        f"{inside}</{kind}></content></entry>"
    )


def url(server: BrokerServer, path: str, more: str = VERSION) -> str:
    return f"http://127.0.0.1:{server.port}/{path}?{more}"


async def test_a_queue_by_plain_requests(
    server: BrokerServer, session: aiohttp.ClientSession
) -> None:
    at = url(server, "a/b c")
    async with session.put(at, data=entry(inside="<LockDuration>PT45S</LockDuration>")) as answer:
        assert answer.status == 201
        assert answer.headers["Content-Type"] == "application/atom+xml;type=entry;charset=utf-8"
        made = fromstring(await answer.text())
    assert made.findtext(f"{ATOM}title") == "a/b c"
    description = made.find(f"{ATOM}content/{SB}QueueDescription")
    assert description is not None
    assert description.findtext(f"{SB}LockDuration") == "PT45S"
    assert description.findtext(f"{SB}AutoDeleteOnIdle") == FOREVER
    async with session.put(at, data=entry()) as answer:
        assert answer.status == 409
        failed = fromstring(await answer.text())
        assert failed.tag == "Error" and failed.findtext("Code") == "409"
    async with session.put(at, data=entry(), headers={"If-Match": "*"}) as answer:
        assert answer.status == 200
    async with session.get(url(server, "$Resources/Queues")) as answer:
        feed = fromstring(await answer.text())
        assert [each.findtext(f"{ATOM}title") for each in feed.iter(f"{ATOM}entry")] == ["a/b c"]
    async with session.delete(at) as answer:
        assert answer.status == 200
    async with session.get(at) as answer:
        assert answer.status == 404
        assert "The messaging entity" in await answer.text()


async def test_a_listener_of_its_own(server: BrokerServer, session: aiohttp.ClientSession) -> None:
    own = server.addresses[1]
    async with session.put(f"http://127.0.0.1:{own.port}/orders", data=entry()) as answer:
        assert answer.status == 201
    async with session.get(url(server, "orders")) as answer:
        assert answer.status == 200


@pytest.mark.parametrize(
    "body",
    [
        "", "nonsense", "<entry/>", entry("Strange"), entry("RuleDescription"),
        entry("SubscriptionDescription"), entry(inside="<LockDuration>1</LockDuration>"),
        entry(inside="<MaxDeliveryCount>-1</MaxDeliveryCount>"),
        entry(inside="<RequiresSession>yes</RequiresSession>"),
        entry(inside="<Status>Deleting</Status>"),
        entry(inside="<a>" * 20 + "</a>" * 20), entry(inside="<a/>" * 3000),
        f'<!DOCTYPE entry [<!ENTITY a "b">]>{entry()}',
        f'<!DOCTYPE entry SYSTEM "file:///etc/passwd">{entry()}',
    ],
    ids=range(14),
)  # fmt: skip
async def test_bodies_that_are_refused(
    server: BrokerServer, session: aiohttp.ClientSession, body: str
) -> None:
    async with session.put(url(server, "orders"), data=body) as answer:
        assert answer.status == 400
        assert fromstring(await answer.text()).findtext("Code") == "400"
    assert "orders" not in server.broker.default.nodes


async def test_the_status_of_entities(server: BrokerServer, session: aiohttp.ClientSession) -> None:
    async def put(path: str, kind: str, status: str, change: bool = True) -> str | None:
        headers = {"If-Match": "*"} if change else {}
        body = entry(kind, f"<Status>{status}</Status>")
        async with session.put(url(server, path), data=body, headers=headers) as answer:
            assert answer.status == (200 if change else 201), await answer.text()
            found = fromstring(await answer.text()).find(f"{ATOM}content/{SB}{kind}")
            assert found is not None
            return found.findtext(f"{SB}Status")

    queue, topic, subscription = "QueueDescription", "TopicDescription", "SubscriptionDescription"
    assert await put("q", queue, "SendDisabled", False) == "SendDisabled"
    for status in ("ReceiveDisabled", "Disabled", "Active"):
        assert await put("q", queue, status) == status
        node = server.broker.default.nodes["q"]
        assert isinstance(node, Queue)
        assert node.policy.send_disabled == (status == "Disabled")
        assert node.policy.receive_disabled == (status != "Active")
    assert await put("t", topic, "Active", False) == "Active"
    assert await put("t/Subscriptions/s", subscription, "Active", False) == "Active"
    for path, kind in (("t", topic), ("t/Subscriptions/s", subscription)):
        for status in ("Disabled", "Active"):
            assert await put(path, kind, status) == status


@pytest.mark.parametrize("setting", ["ForwardTo", "ForwardDeadLetteredMessagesTo"])
async def test_messages_are_forwarded_to_entities_that_exist(
    server: BrokerServer, session: aiohttp.ClientSession, setting: str
) -> None:
    body = entry(inside=f"<{setting}>sb://localhost/Bills</{setting}>")
    async with session.put(url(server, "orders"), data=body) as answer:
        assert answer.status == 400
        detail = fromstring(await answer.text()).findtext("Detail")
        assert detail == f"{setting}: The messaging entity 'Bills' could not be found"
    assert "orders" not in server.broker.default.nodes
    async with session.put(url(server, "bills"), data=entry()) as answer:
        assert answer.status == 201
    async with session.put(url(server, "orders"), data=body) as answer:
        assert answer.status == 201
    node = server.broker.default.nodes["orders"]
    assert isinstance(node, Queue)
    assert "bills" in (node.policy.forward_to, node.policy.dead_letter)


async def test_requests_that_are_refused(
    server: BrokerServer, session: aiohttp.ClientSession
) -> None:
    for method, path, status in (
        ("POST", "orders", 405), ("PUT", "$Resources/queues", 405),
        ("DELETE", "$namespaceinfo", 405),
        ("GET", "$strange", 404), ("GET", "a//b", 400), ("GET", "news/subscriptions", 404),
        ("PUT", "orders/$DeadLetterQueue", 400), ("PUT", "a::b", 400), ("GET", "x" * 1100, 400),
    ):  # fmt: skip
        async with session.request(method, url(server, path), data=entry()) as answer:
            assert answer.status == status, (method, path)
    for query in ("$skip=x", "$top=-1", "$skip=99999999999"):
        async with session.get(url(server, "$Resources/queues", query)) as answer:
            assert answer.status == 400


async def changed(
    server: BrokerServer, session: aiohttp.ClientSession, path: str, inside: str, kind: str
) -> int:
    """The status of an update."""
    headers = {"If-Match": "*"}
    body = entry(kind, inside)
    async with session.put(url(server, path), data=body, headers=headers) as answer:
        return answer.status


async def test_an_update_keeps_what_a_description_cannot_say(
    session: aiohttp.ClientSession,
) -> None:
    config = Config.model_validate(
        {
            "listener": [{"url": "any://127.0.0.1:0"}],
            "queue": [{"name": "jobs", "priorities": 4, "dead_letter": "dead"}, {"name": "dead"}],
            "topic": [{"name": "news", "max_rules": 7}],
        }
    )
    server = BrokerServer(config)
    server.tables = replace(server.tables, http_handlers={"": make_handler})
    inside = "<LockDuration>PT5S</LockDuration><MaxSizeInMegabytes>1024</MaxSizeInMegabytes>"
    async with server:
        assert await changed(server, session, "jobs", inside, "QueueDescription") == 200
        inside = "<DefaultMessageTimeToLive>P1D</DefaultMessageTimeToLive>"
        assert await changed(server, session, "news", inside, "TopicDescription") == 200
        inside = "<RequiresSession>true</RequiresSession>"
        assert await changed(server, session, "jobs", inside, "QueueDescription") == 409
        assert await changed(server, session, "news", "", "QueueDescription") == 404
        jobs, news = (server.broker.default.nodes[name] for name in ("jobs", "news"))
        assert isinstance(jobs, Queue) and isinstance(news, Topic)
        assert jobs.policy.priorities == 4 and jobs.policy.dead_letter == "dead"
        assert jobs.policy.lock_duration == 5000 and jobs.policy.max_bytes == 0
        assert news.policy.max_rules == 7
        assert news.policy.subscription.message_ttl == 86_400_000


async def test_entities_outlive_the_broker(tmp_path: Path, session: aiohttp.ClientSession) -> None:
    config = Config(listener=[Listener(url="any://127.0.0.1:0")], store=Store(path=tmp_path))
    for number in range(2):
        server = BrokerServer(config)
        server.tables = replace(server.tables, http_handlers={"": make_handler})
        async with server:
            for path, kind in (
                ("orders", "QueueDescription"),
                ("news", "TopicDescription"),
                ("news/Subscriptions/audit", "SubscriptionDescription"),
            ):
                async with session.put(url(server, path), data=entry(kind)) as answer:
                    assert answer.status == (409 if number else 201)
                async with session.get(url(server, path)) as answer:
                    assert answer.status == 200
            async with session.get(
                url(server, "news/Subscriptions/audit/Rules/$Default")
            ) as answer:
                assert answer.status == 200 and "TrueFilter" in await answer.text()


async def test_each_virtual_host_has_entities_of_its_own(session: aiohttp.ClientSession) -> None:
    config = Config.model_validate(
        {
            "listener": [{"url": "any://127.0.0.1:0"}],
            "virtual_host": [{"name": "tenant", "hostnames": ["tenant.example"]}],
        }
    )
    server = BrokerServer(config)
    server.tables = replace(server.tables, http_handlers={"": make_handler})
    async with server:
        headers = {"Host": f"tenant.example:{server.port}"}
        async with session.put(url(server, "orders"), data=entry(), headers=headers) as answer:
            assert answer.status == 201
        async with session.get(url(server, "orders")) as answer:
            assert answer.status == 404
        assert "orders" in server.broker.spaces["tenant"].nodes


def signature(resource: str, name: str, key: str) -> str:
    until = "4000000000"
    resource = quote(resource, safe="")
    signed = hmac.digest(key.encode(), f"{resource}\n{until}".encode(), "sha256")
    sig = quote(base64.b64encode(signed).decode(), safe="")
    return f"SharedAccessSignature sr={resource}&sig={sig}&se={until}&skn={name}"


async def test_a_token_is_for_what_it_was_signed_for(session: aiohttp.ClientSession) -> None:
    key = {"name": "owner", "primary": "owner-key", "may": "*"}
    async with server_with(shared_access_key=[key]) as server:
        of_queue = {"Authorization": signature("sb://localhost/Orders", "owner", "owner-key")}
        of_all = {"Authorization": signature("http://localhost/", "owner", "owner-key")}
        # Some clients sign the URL of each request.
        whole = url(server, "$Resources/queues")
        of_url = {"Authorization": signature(whole, "owner", "owner-key")}
        for headers, method, path, status in (
            ({}, "PUT", "orders", 401),
            ({"Authorization": "Bearer x"}, "PUT", "orders", 401),
            (of_queue, "PUT", "orders2", 401),
            (of_queue, "PUT", "orders", 201),
            (of_queue, "GET", "$Resources/queues", 401),
            (of_queue, "GET", "$namespaceinfo", 401),
            (of_url, "GET", "$Resources/queues", 200),
            (of_url, "GET", "$namespaceinfo", 401),
            (of_all, "GET", "$Resources/queues", 200),
            (of_all, "PUT", "orders2", 201),
            (of_queue, "DELETE", "orders2", 401),
            (of_queue, "DELETE", "ORDERS", 200),
        ):
            request = session.request(method, url(server, path), data=entry(), headers=headers)
            async with request as answer:
                assert answer.status == status, (method, path)
                if status == 401:
                    assert answer.headers["WWW-Authenticate"] == "SharedAccessSignature"


@pytest.mark.parametrize(
    ("settings", "rules", "status"),
    [
        ({}, [], 201),
        ({"users": {"alice": "secret"}}, [], 401),
        ({"users": {"alice": "secret"}, "anonymous": True}, [], 201),
        ({"anonymous": False}, [], 401),
        ({}, [{"who": "*", "may": ["send"], "where": "*"}], 401),
        ({}, [{"who": "*", "may": ["create"], "where": "orders"}], 201),
    ],
)
async def test_clients_without_a_token(
    session: aiohttp.ClientSession,
    settings: dict[str, object],
    rules: list[dict[str, object]],
    status: int,
) -> None:
    config = Config.model_validate(
        {"listener": [{"url": "any://127.0.0.1:0"}], "security": settings, "rule": rules}
    )
    server = BrokerServer(config)
    server.tables = replace(server.tables, http_handlers={"": make_handler})
    async with server:
        for headers in ({}, {"Authorization": signature("sb://localhost/", "any", "key")}):
            async with session.put(url(server, "orders"), data=entry(), headers=headers) as answer:
                assert answer.status == status
            if status == 201:
                server.broker.default.remove(server.broker.default.nodes["orders"])


async def test_forwarding_takes_a_token_for_its_target(session: aiohttp.ClientSession) -> None:
    key = {"name": "owner", "primary": "owner-key", "may": "*"}
    inside = "<ForwardTo>sb://localhost/archive</ForwardTo>"
    async with server_with(shared_access_key=[key]) as server:
        own = signature("sb://localhost/orders", "owner", "owner-key")
        server.broker.default.create("archive", QueuePolicy())
        for target, status in (
            (None, 401),
            (signature("sb://localhost/other", "owner", "owner-key"), 401),
            (signature("sb://localhost/archive", "owner", "wrong-key"), 401),
            (signature("sb://localhost/archive", "owner", "owner-key"), 201),
        ):
            headers = {"Authorization": own}
            if target is not None:
                headers["ServiceBusSupplementaryAuthorization"] = target
            async with session.put(
                url(server, "orders"), data=entry(inside=inside), headers=headers
            ) as answer:
                assert answer.status == status


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("PT1M", 60_000), ("P1DT2H3M4.5S", 93_784_500), ("P14D", 1_209_600_000), ("PT0.25S", 250)],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert write_duration(milliseconds) == text


def test_endless_durations() -> None:
    assert write_duration(0) == write_duration(-1) == FOREVER


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/orders", ("entity", "orders", "", "")),
        ("/a/b/c", ("entity", "a/b/c", "", "")),
        ("/news/Subscriptions", ("subscriptions", "news", "", "")),
        ("/a/news/subscriptions/audit/", ("subscription", "a/news", "audit", "")),
        ("/news/subscriptions/audit/RULES", ("rules", "news", "audit", "")),
        ("/news/subscriptions/audit/rules/r", ("rule", "news", "audit", "r")),
        ("/$Resources/Topics", ("topics", "", "", "")),
        ("/$NamespaceInfo", ("namespace", "", "", "")),
    ],
)
def test_paths(path: str, meant: tuple[str, str, str, str]) -> None:
    assert parse_path(path) == AdministrationPath(*meant)
