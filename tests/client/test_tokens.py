"""Authenticating with a token: a text, or a function that is asked at each connect."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator

import pytest

import ferrymq
from ferrymq import blocking
from ferrymq.engine import Anonymous, events
from ferrymq.errors import AuthenticationError, TransportError
from ferrymq.options import ConnectionOptions
from tests.client.keeper import POLICY
from tests.client.peer import Peer, PeerConnection


@pytest.fixture
async def taker() -> AsyncIterator[Peer]:
    """A server that takes tokens and nothing else."""
    async with Peer(sasl_mechanisms=["OAUTHBEARER"], sasl_required=True) as peer:
        yield peer


def tokens(peer: Peer) -> list[str | None]:
    """What the server has been shown."""
    return [
        event.token for event in peer.events if isinstance(event, events.AuthenticationRequested)
    ]


async def test_a_token(taker: Peer) -> None:
    async with ferrymq.connect(taker.url, token="token-1"):
        pass
    asked = await taker.seen(events.AuthenticationRequested)
    assert (asked.mechanism, asked.token, asked.username) == ("OAUTHBEARER", "token-1", None)


async def test_whom_to_act_as(taker: Peer) -> None:
    url = taker.url.replace("localhost", "alice@localhost")
    async with ferrymq.connect(url, token="token-1"):
        pass
    assert (await taker.seen(events.AuthenticationRequested)).username == "alice"


async def test_a_refused_token(taker: Peer) -> None:
    def refuse(connection: PeerConnection, event: events.AuthenticationRequested) -> None:
        connection.engine.reject_authentication()

    taker.on[events.AuthenticationRequested] = refuse
    with pytest.raises(AuthenticationError, match="invalid_token") as raised:
        await ferrymq.connect(taker.url, token="token-1")
    assert "token-1" not in str(raised.value)


async def test_a_server_that_takes_none(peer: Peer) -> None:
    with pytest.raises(AuthenticationError, match="not OAUTHBEARER"):
        await ferrymq.connect(peer.url, token="token-1")
    assert not tokens(peer)


@pytest.mark.parametrize("kind", ["function", "coroutine", "lambda"])
async def test_each_connect_has_a_token_of_its_own(taker: Peer, kind: str) -> None:
    given: list[str] = []

    def source() -> str:
        assert threading.current_thread() is not threading.main_thread()
        given.append(f"token-{len(given)}")
        return given[-1]

    async def awaited() -> str:
        await asyncio.sleep(0)
        given.append(f"token-{len(given)}")
        return given[-1]

    token = {"function": source, "coroutine": awaited, "lambda": lambda: awaited()}[kind]
    async with ferrymq.connect(taker.url, token=token, reconnect=POLICY) as connection:
        taker.connection.transport.abort()
        await taker.seen(events.OpenReceived, 2)
        sender = await connection.sender("orders")
        await sender.send(ferrymq.Message(b"x"))
    assert tokens(taker) == ["token-0", "token-1"]


async def test_when_no_token_can_be_had(taker: Peer) -> None:
    def broken() -> str:
        raise OSError("secret of the token service")

    with pytest.raises(TransportError, match="no token to connect with: OSError") as raised:
        await ferrymq.connect(taker.url, token=broken)
    assert "secret" not in str(raised.value)
    for bad in (lambda: "two words", lambda: 7, lambda: None):
        with pytest.raises(TransportError, match="no token") as raised:
            await ferrymq.connect(taker.url, token=bad)  # type: ignore[arg-type]
        assert "two words" not in str(raised.value)
    assert not taker.connections


async def test_a_token_service_that_comes_back(taker: Peer) -> None:
    asked = 0

    def source() -> str:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise ConnectionError("not now")
        return f"token-{asked}"

    async with ferrymq.connect(taker.url, token=source, reconnect=POLICY):
        taker.connection.transport.abort()
        await taker.seen(events.OpenReceived, 2)
    assert tokens(taker) == ["token-1", "token-3"]


async def test_a_token_that_takes_too_long(taker: Peer) -> None:
    async def never() -> str:
        await asyncio.Event().wait()
        return ""

    with pytest.raises(TimeoutError):
        await ferrymq.connect(taker.url, token=never, timeout=0.05)


async def test_blocking(taker: Peer) -> None:
    def use() -> None:
        with blocking.connect(taker.url, token=lambda: "token-1"):
            pass

    await asyncio.to_thread(use)
    assert tokens(taker) == ["token-1"]


@pytest.mark.parametrize(
    ("url", "options", "reason"),
    [
        ("amqp://broker.example", {}, "amqps"),
        ("amqp://10.1.2.3", {}, "amqps"),
        ("amqp://user:password@localhost", {}, "password"),
        ("amqp://localhost", {"sasl": Anonymous()}, "sasl"),
        ("amqp://localhost", {"sasl": None}, "sasl"),
        ("amqp://localhost", {"token": "two words"}, "bearer token"),
        ("amqp://localhost", {"token": ""}, "bearer token"),
    ],
)
def test_what_does_not_go_with_a_token(url: str, options: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as raised:
        ferrymq.connect(url, **{"token": "token-1", **options})  # type: ignore[arg-type]
    assert "token-1" not in str(raised.value) and "two words" not in str(raised.value)


@pytest.mark.parametrize("url", ["amqps://broker.example", "amqp://127.0.0.1", "amqp://[::1]"])
def test_where_nobody_else_reads_it(url: str) -> None:
    ferrymq.connect(url, token="token-1").opener()
    ferrymq.connect("amqp://broker.example", token="token-1", upgrade_tls=True).opener()


async def test_tokens_are_never_shown(taker: Peer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with ferrymq.connect(taker.url, token="token-1") as connection:
        assert "token-1" not in repr(connection)
    assert "token-1" not in repr(ConnectionOptions(token="token-1"))
    assert "token-1" not in caplog.text
