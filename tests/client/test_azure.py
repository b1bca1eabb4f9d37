"""`ferrymq.azure` with a broker of ferrymq, which takes tokens at ``$cbs`` as Azure does."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ferrymq
import ferrymq.azure.blocking
from ferrymq import Message, azure
from ferrymq.azure.connection_string import ConnectionString
from ferrymq.azure.credentials import entra, shared_access
from ferrymq.engine import events
from ferrymq.engine.sender import SenderLink
from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer
from ferrymq_codec.scalars import Int
from tests.broker.tokens.makers import AUDIENCE, ISSUER, ec_key, jwks, make_jwt
from tests.client.keeper import POLICY
from tests.client.peer import Peer, PeerConnection
from tests.client.test_blocking_parity import parameters

PAGE = Path(__file__).parents[2] / "docs/client/azure.md"
KEY = "bm90aGluZyB0aGF0IGlzIHNlY3JldA=="
CONFIG: dict[str, Any] = {
    "listener": [{"url": "amqp://127.0.0.1:0"}, {"url": "ws://127.0.0.1:0"}],
    "security": {
        "anonymous": True,
        "shared-access-key": [
            {"name": "shop", "primary": KEY, "may": ["send", "receive"], "where": "*"}
        ],
    },
    "personality": {
        "name": "azure",
        "queue": [{"name": "orders"}],
        "topic": [{"name": "news", "subscription": [{"name": "mine"}]}],
        "hub": [{"name": "telemetry", "partition-count": 1}],
    },
}


@pytest.fixture
async def server() -> AsyncIterator[BrokerServer]:
    async with BrokerServer(Config.model_validate(CONFIG)) as running:
        yield running


@pytest.fixture
def tokens(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "ferrymq")
    return caplog


def place(server: BrokerServer, scheme: str = "amqp") -> str:
    """Host and port of a listener."""
    (found,) = (one.url for one in server.addresses if one.url.startswith(f"{scheme}://"))
    return found.partition("://")[2].rstrip("/")


def access(server: BrokerServer, key: str = KEY, scheme: str = "amqp", more: str = "") -> str:
    return (
        f"Endpoint=sb://{place(server, scheme)}/;SharedAccessKeyName=shop;SharedAccessKey={key};"
        f"UseDevelopmentEmulator=true;{more}"
    )


def put(log: pytest.LogCaptureFixture) -> list[str]:
    """The entities that tokens were put for, in their order."""
    return re.findall(r"put a token for sb://[^/\s]*/(.*)", log.text)


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_sending_and_receiving(
    server: BrokerServer, tokens: pytest.LogCaptureFixture
) -> None:
    """A token is put once for each entity."""
    async with azure.connect(access(server)) as connection:
        sender = await connection.sender("orders")
        await sender.send("one")
        receiver = await connection.receiver("orders")
        async with await receiver.receive(timeout=20) as delivery:
            assert delivery.message.body == "one"
        await connection.receiver(azure.subscription_address("news", "mine"))
    assert put(tokens) == ["orders", "news/Subscriptions/mine"]
    assert KEY not in tokens.text


async def test_links_at_the_same_time(
    server: BrokerServer, tokens: pytest.LogCaptureFixture
) -> None:
    """Links that are attached at once wait for one token, and are refused together."""
    async with azure.connect(access(server)) as connection:
        senders = await asyncio.gather(*(connection.sender("orders") for _ in range(20)))
        assert not any(sender.closed for sender in senders)
    assert put(tokens) == ["orders"]
    async with azure.connect(access(server, key="d3Jvbmcgd3Jvbmcgd3Jvbmc=")) as connection:
        ends = await asyncio.gather(
            *(connection.sender("orders") for _ in range(20)), return_exceptions=True
        )
        assert {type(end) for end in ends} == {azure.TokenRefused}
    assert tokens.text.count("'event': 'token-refused'") == 1


async def test_event_hubs(server: BrokerServer, tokens: pytest.LogCaptureFixture) -> None:
    """One token serves the addresses of a hub."""
    async with azure.connect(access(server)) as connection:
        sender = await connection.sender(azure.partition_address("telemetry", 0))
        for number in range(5):
            await sender.send(Message(number))
        address = azure.consumer_address("telemetry", 0)
        assert address == "telemetry/ConsumerGroups/$Default/Partitions/0"

        async def first(**position: Any) -> object:
            async with connection.receiver(
                address, credit=1, **azure.starting_position(**position)
            ) as receiver:
                return (await receiver.receive(timeout=20)).message.body

        assert await first(position="first") == 0
        assert await first(position=2) == 3
        assert await first(position=2, inclusive=True) == 2
        past = datetime.fromtimestamp(time.time() - 60, UTC)
        assert await first(position=past) == 0
        with pytest.raises(TimeoutError):
            async with connection.receiver(address, **azure.starting_position("next")) as receiver:
                await receiver.receive(timeout=0.2)
    assert put(tokens) == ["telemetry"]


async def test_a_wrong_key(server: BrokerServer, tokens: pytest.LogCaptureFixture) -> None:
    async with azure.connect(access(server, key="d3Jvbmcgd3Jvbmcgd3Jvbmc=")) as connection:
        with pytest.raises(azure.TokenRefused) as refused:
            await connection.sender("orders")
        audience = f"sb://{place(server)}/orders"
        assert refused.value.audience == audience and refused.value.status == 401
        assert str(refused.value) == (
            f"'orders': the service refused the token for {audience}: "
            "amqp:unauthorized-access: the token is not valid for this name (401)"
        )
        assert isinstance(refused.value, ferrymq.LinkDetached)
        assert "d3Jvbmc" not in f"{refused.value!r} {connection.options!r} {tokens.text}"
        assert not connection.closed


async def test_after_a_reconnect(server: BrokerServer, tokens: pytest.LogCaptureFixture) -> None:
    """Each link gets its token before it is attached again."""
    async with azure.connect(access(server), reconnect=POLICY) as connection:
        sender = await connection.sender("orders")
        receiver = await connection.receiver("news/Subscriptions/mine")
        for round in (2, 3):
            connection.transport.abort()
            await sender.send("again", timeout=20)
            await until(lambda n=round: put(tokens) == ["orders", "news/Subscriptions/mine"] * n)
        assert not receiver.closed
        # A link that is opened while the connection is restored waits for that.
        connection.transport.abort()
        await asyncio.sleep(0)
        await (await connection.sender("orders")).send("more", timeout=20)


async def test_links_outlive_their_first_token(
    server: BrokerServer, tokens: pytest.LogCaptureFixture
) -> None:
    """The broker detaches links whose token has expired."""
    async with azure.connect(access(server), token_lifetime=2) as connection:
        sender = await connection.sender("orders")
        await asyncio.sleep(3.5)
        await sender.send("late", timeout=20)
    assert len(put(tokens)) >= 2


class Clock:
    """A time that tests advance."""

    def __init__(self) -> None:
        self.now = time.time()
        self._sleeping: list[tuple[float, asyncio.Future[None]]] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        self._sleeping.append((self.now + seconds, future))
        await future

    @property
    def due(self) -> list[float]:
        """In how many seconds those that sleep wake up."""
        return [at - self.now for at, future in self._sleeping if not future.done()]

    async def pass_by(self, seconds: float) -> None:
        self.now += seconds
        for at, future in self._sleeping:
            if at <= self.now and not future.done():
                future.set_result(None)
        await asyncio.sleep(0.2)


async def test_renewal(server: BrokerServer, tokens: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    parts = ConnectionString.parse(access(server))
    authorizer = azure.Authorizer(
        shared_access(parts, 3600), parts.host, clock=clock, sleep=clock.sleep
    )
    async with ferrymq.connect(parts.url, authorize=authorizer) as connection:
        await connection.sender("orders")
        await asyncio.sleep(0.05)
        assert clock.due == [pytest.approx(0.8 * 3600, abs=2)]
        other = await connection.receiver("news/Subscriptions/mine")
        await clock.pass_by(0.5 * 3600)
        assert len(put(tokens)) == 2
        await clock.pass_by(0.31 * 3600)
        assert put(tokens)[2:] == ["orders", "news/Subscriptions/mine"]
        # An entity without links needs no token.
        await other.close()
        await clock.pass_by(0.81 * 3600)
        assert put(tokens)[4:] == ["orders"]
    assert all(task is asyncio.current_task() for task in asyncio.all_tasks())


async def test_a_renewal_that_fails(tokens: pytest.LogCaptureFixture) -> None:
    """A renewal that failed is tried again, and the connection goes on."""
    clock = Clock()
    async with Service() as service:
        service.statuses = [202, 500, 202]
        authorizer = azure.Authorizer(
            entra(lambda: azure.AccessToken("a.b.c", int(clock.now) + 100)),
            "host",
            clock=clock,
            sleep=clock.sleep,
        )
        async with ferrymq.connect(service.url, authorize=authorizer) as connection:
            sender = await connection.sender("orders")
            await clock.pass_by(80)
            assert "sb://host/orders could not be renewed, which is tried again: no" in tokens.text
            assert clock.due == [30.0]
            await clock.pass_by(30)
            assert put(tokens) == ["orders", "orders"]
            await sender.send("one", timeout=20)
    assert [one.body for one in service.puts] == ["a.b.c"] * 3
    assert "a.b.c" not in tokens.text


class Service(Peer):
    """Answers requests at ``$cbs`` with `statuses`, then with 202."""

    def __init__(self) -> None:
        super().__init__()
        self.statuses: list[int] = []
        self.puts: list[Message] = []
        self.on[events.DeliveryReceived] = self.delivered

    def delivered(self, connection: PeerConnection, event: events.DeliveryReceived) -> None:
        self.default(connection, event)
        requests, self.received["$cbs"] = self.received["$cbs"], []
        for request in requests:
            self.puts.append(request)
            status = self.statuses.pop(0) if self.statuses else 202
            response = Message(
                None,
                correlation_id=request.message_id,
                application_properties={"status-code": Int(status), "status-description": "no"},
            )
            # Links in both directions have this name.
            assert request.reply_to is not None
            for link in event.link.session.links.values():
                if isinstance(link, SenderLink) and link.name == request.reply_to:
                    link.send(response.encode())


async def test_tokens_of_entra() -> None:
    async def credential() -> azure.Token:
        return azure.AccessToken("header.body.signature", int(time.time()) + 3600)

    async with Service() as service:
        url = service.url.replace("amqp://", "Endpoint=sb://") + "/;UseDevelopmentEmulator=true"
        async with azure.connect(url, credential=credential) as connection:
            await connection.sender("orders/$management")
    (request,) = service.puts
    assert request.body == "header.body.signature"
    assert request.application_properties == {
        "operation": "put-token",
        "type": "jwt",
        "name": f"sb://localhost:{service.port}/orders",
    }


async def test_a_credential_that_fails(tokens: pytest.LogCaptureFixture) -> None:
    def credential() -> azure.Token:
        raise OSError("not-for-the-log")

    async with Service() as service:
        url = service.url.replace("amqp://", "Endpoint=sb://") + "/;UseDevelopmentEmulator=true"
        async with azure.connect(url, credential=credential) as connection:
            with pytest.raises(ferrymq.TransportError, match=r"/orders: the credential .* OSError"):
                await connection.sender("orders")
            assert not connection.closed
    assert "not-for-the-log" not in tokens.text


async def test_a_token_that_the_broker_checks(tmp_path: Path) -> None:
    """A JWT of an issuer that the broker knows; its rules say what the bearer may do."""
    keys = tmp_path / "keys.json"
    keys.write_text(jwks(ec_key()))
    issuer = {"issuer": ISSUER, "audience": AUDIENCE, "keys": str(keys)}
    config = {
        "listener": [{"url": "amqp://127.0.0.1:0"}],
        "security": {"anonymous": True, "jwt": [issuer]},
        "rule": [{"who": "user:alice", "may": ["send"], "where": "orders"}],
        "queue": [{"name": "orders"}, {"name": "others"}],
    }
    expiry = int(time.time()) + 3600

    def credential() -> azure.Token:
        return azure.AccessToken(make_jwt(iat=expiry - 3600, exp=expiry), expiry)

    async with BrokerServer(Config.model_validate(config)) as server:
        string = f"Endpoint=sb://{place(server)}/;UseDevelopmentEmulator=true"
        async with azure.connect(string, credential=credential) as connection:
            await (await connection.sender("orders")).send("one", timeout=20)
            with pytest.raises(ferrymq.LinkDetached, match=r"^'others': amqp:unauthorized-access"):
                await connection.sender("others")


async def test_a_signature_in_place_of_a_key(
    server: BrokerServer, tokens: pytest.LogCaptureFixture
) -> None:
    host = place(server)
    made = azure.AccessKey("shop", KEY).token(f"sb://{host}/", int(time.time()) + 60)
    string = f"Endpoint=sb://{host}/;SharedAccessSignature={made};UseDevelopmentEmulator=true"
    async with azure.connect(string) as connection:
        await (await connection.sender("orders")).send("one", timeout=20)
    assert put(tokens) == ["orders"] and made not in tokens.text


async def test_with_a_websocket(server: BrokerServer) -> None:
    pytest.importorskip("aiohttp")
    async with azure.connect(access(server, scheme="ws"), websocket=True) as connection:
        assert connection.url.web.endswith("/$servicebus/websocket")
        await (await connection.sender("orders")).send("one", timeout=20)


async def test_with_threads(server: BrokerServer, tokens: pytest.LogCaptureFixture) -> None:
    def use() -> object:
        with azure.blocking.connect(access(server)) as connection:
            connection.sender("orders").send("one", timeout=20)
            with connection.receiver("orders").receive(timeout=20) as delivery:
                return delivery.message.body

    assert await asyncio.to_thread(use) == "one"
    assert put(tokens) == ["orders"]
    assert parameters(azure.blocking.connect) == parameters(azure.connect)


async def test_the_page(
    server: BrokerServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its code runs as it is written, except that there is no azure-identity."""
    monkeypatch.setenv("SERVICE_BUS", access(server))
    identity = ModuleType("azure.identity.aio")
    monkeypatch.setattr(identity, "DefaultAzureCredential", None, raising=False)
    monkeypatch.setitem(sys.modules, "azure.identity.aio", identity)
    functions: dict[str, Any] = {"__name__": "page"}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S):
        exec(compile(code, "azure.md", "exec"), functions)
    await functions["send_and_receive"]()
    await asyncio.to_thread(functions["send_order"])
    async with azure.connect(access(server)) as connection:
        async with connection.receiver("orders") as receiver:
            await functions["dead_letter"](await receiver.receive(timeout=20))
        ids = await functions["partition_ids"](connection)
        assert ids.items == ("0",)
        await (await connection.sender("telemetry")).send("an event")
        reading = asyncio.create_task(functions["read_partition"](connection))
        seen = ""
        while "an event" not in seen:
            await asyncio.sleep(0.01)
            seen += capsys.readouterr().out
        reading.cancel()
        await asyncio.wait([reading])
    assert seen == "a teapot\n0 an event\n"


# ── Without a broker ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "url", "host", "entity"),
    [
        ("Endpoint=sb://n.example/", "amqps://n.example:5671", "n.example", None),
        ("endpoint=sb://n.example:99;EntityPath=q", "amqps://n.example:99", "n.example:99", "q"),
        ("Endpoint=sb://[::1]/;UseDevelopmentEmulator=true", "amqp://[::1]:5672", "[::1]", None),
    ],
)
def test_connection_strings(text: str, url: str, host: str, entity: str | None) -> None:
    parts = ConnectionString.parse(text)
    assert (parts.url, parts.host, parts.entity) == (url, host, entity)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Endpoint is missing"),
        ("nonsense;more", "not NAME=VALUE"),
        ("SharedAccessKey=hidden=", "Endpoint is missing"),
        ("Endpoint=sb://h/;SharedAccessKey=hidden=", "SharedAccessKeyName is missing"),
        ("Endpoint=sb://h/;SharedAccessKeyName=n", "SharedAccessKey is missing"),
        ("Endpoint=sb://h/;SharedAccessSignature=hidden", "does not begin"),
        ("Endpoint=https://h/;SharedAccessKey=hidden=;SharedAccessKeyName=n", "is not sb://"),
        ("Endpoint=sb://h/", "it has no key; .*; or give a credential"),
        ("n.example", "it has no key"),
    ],
)
def test_strings_that_are_wrong(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^the connection string: .*{reason}") as raised:
        azure.connect(text)
    assert "hidden" not in str(raised.value)


def test_other_mistakes() -> None:
    string = f"Endpoint=sb://h/;SharedAccessKeyName=n;SharedAccessKey={KEY}"
    assert KEY not in repr(ConnectionString.parse(string))
    with pytest.raises(ValueError, match="give credential="):
        azure.connect(string, token="a.b.c")
    with pytest.raises(TypeError, match="no argument 'colour'"):
        azure.connect(string, colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="not int"):
        azure.connect(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="token_lifetime"):
        azure.connect(string, token_lifetime=-1)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (azure.subscription_address("t", "s"), "t/Subscriptions/s"),
        (azure.dead_letter_address("q"), "q/$DeadLetterQueue"),
        (azure.dead_letter_address("q", transfer=True), "q/$Transfer/$DeadLetterQueue"),
        (
            azure.dead_letter_address(azure.subscription_address("t", "s")),
            "t/Subscriptions/s/$DeadLetterQueue",
        ),
        (azure.consumer_address("h", "3", "g"), "h/ConsumerGroups/g/Partitions/3"),
        (azure.partition_address("h", 3), "h/Partitions/3"),
    ],
)
def test_addresses(address: str, expected: str) -> None:
    assert address == expected


@pytest.mark.parametrize(
    ("position", "inclusive", "selector"),
    [
        ("first", False, "amqp.annotation.x-opt-offset > '-1'"),
        ("-1", False, "amqp.annotation.x-opt-offset > '-1'"),
        ("next", False, "amqp.annotation.x-opt-offset > '@latest'"),
        ("4096", True, "amqp.annotation.x-opt-offset >= '4096'"),
        (7, False, "amqp.annotation.x-opt-sequence-number > '7'"),
        (
            datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC),
            False,
            "amqp.annotation.x-opt-enqueued-time > '5000'",
        ),
    ],
)
def test_positions(position: str | int | datetime, inclusive: bool, selector: str) -> None:
    assert azure.starting_position(position, inclusive=inclusive) == {"selector": selector}


def test_positions_that_are_none() -> None:
    for position in (-1, "", "a' or 'b", datetime(2026, 1, 1)):
        with pytest.raises(ValueError, match=r"negative|no offset|time zone"):
            azure.starting_position(position)
