"""One port for AMQP, HTTP and WebSocket, with TLS and without."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import uvloop
from proton import Message as ProtonMessage
from proton.utils import BlockingConnection

import ferrymq
from ferrymq import Message
from ferrymq.engine.sasl import External
from ferrymq_broker.config import Config
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.config.limits import Limits
from ferrymq_broker.config.listeners import Listener
from ferrymq_broker.config.load import load_config
from ferrymq_broker.config.model import Store
from ferrymq_broker.server import BrokerServer
from ferrymq_broker.server.any_listener import detect
from ferrymq_broker.server.http_handlers import (
    HttpHandlers,
    HttpRequest,
    HttpResponse,
    HttpSteps,
)
from ferrymq_broker.server.websocket_limits import MOST_BODY, MOST_EARLY_BYTES
from ferrymq_broker.values.policy import QueuePolicy
from tests.broker.tls.conftest import pki as pki
from tests.broker.tls.pki import Pki, serving
from tests.broker.websocket.waiting import empty

AMQP = b"AMQP\x00\x01\x00\x00"
GET = b"GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def hello(request: HttpRequest) -> HttpResponse:
    """The request, told back."""
    said = [request.method, request.path, request.query.get("a", ""), request.base]
    said += [request.headers.get("x-test", ""), str(request.client.encrypted)]
    text = "|".join(said).encode() + b"|" + request.body
    return HttpResponse(200, text, {"Content-Type": "text/plain"})


@pytest.fixture
async def server() -> AsyncIterator[BrokerServer]:
    listener = Listener(url="any://127.0.0.1:0")
    limits = Limits(handshake_timeout=1.0)
    async with BrokerServer(Config(listener=[listener], limits=limits)) as server:
        server.http_handlers.mount("default", "/hello", hello)
        yield server


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def exchange(url: str, context: ssl.SSLContext | None = None) -> None:
    """Send a message and receive it."""
    async with (
        ferrymq.connect(url, ssl=context) as connection,
        connection.sender("orders") as sender,
        connection.receiver("orders") as receiver,
    ):
        await sender.send(Message(body=b"hello"))
        delivery = await receiver.receive(timeout=20)
        assert delivery.message.body == b"hello"
        await delivery.accept()


@pytest.fixture
async def impatient() -> AsyncIterator[BrokerServer]:
    """A broker that lets slow clients go soon."""
    limits = Limits(handshake_timeout=0.2)
    async with BrokerServer(
        Config(listener=[Listener(url="any://127.0.0.1:0")], limits=limits)
    ) as server:
        server.http_handlers.mount("default", "/hello", hello)
        yield server


async def answer_to(
    port: int, *pieces: bytes, context: ssl.SSLContext | None = None, most: int = -1
) -> bytes:
    """What the broker answers until it hangs up, or until there are so many bytes."""
    reader, writer = await asyncio.open_connection("localhost", port, ssl=context)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)
    try:
        async with asyncio.timeout(10):
            return await (reader.read() if most < 0 else reader.readexactly(most))
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", None), (b"G", None), (b"P", None), (b"OPTIONS", None),
        (b"GET ", "http"), (b"PUT /", "http"), (b"OPTIONS *", "http"),
        (b"\x16", "tls"), (b"\x16\x03\x01", "tls"),
        (b"A", "amqp"), (AMQP, "amqp"), (b"\x00", "amqp"), (b"GETS", "amqp"),
        (b"PRI * HTTP/2.0", "amqp"), (b"get /", "amqp"), (b"PURGE /", "amqp"),
    ],
)  # fmt: skip
def test_the_first_bytes_say_it(data: bytes, found: str | None) -> None:
    assert detect(data) == found


async def test_amqp_websocket_and_http_share_a_port(
    server: BrokerServer, session: aiohttp.ClientSession
) -> None:
    at = f"127.0.0.1:{server.port}"
    assert server.url == f"any://{at}"
    await exchange(f"amqp://{at}")
    await exchange(f"ws://{at}")
    for method in ("GET", "PUT", "DELETE", "POST"):
        async with session.request(
            method, f"http://{at}/hello/you%20there?a=1&a=2", data=b"body", headers={"X-Test": "t"}
        ) as answer:
            text = await answer.text()
            assert text == f"{method}|/hello/you there|1|http://{at}|t|False|body"
            assert "Server" not in answer.headers
    for path, status in (("/", 426), ("/other", 404), ("/hello2", 404)):
        async with session.get(f"http://{at}{path}") as answer:
            assert answer.status == status
    async with session.put(f"http://{at}/other") as answer:
        assert answer.status == 405
    await session.close()
    await empty(server)


async def test_with_tls_and_without(pki: Pki, session: aiohttp.ClientSession) -> None:
    trusted = pki.trusting()
    async with serving(pki.tls(), "any://127.0.0.1:0") as server:
        server.http_handlers.mount("default", "", hello)
        at = f"localhost:{server.port}"
        for url in (f"amqps://{at}", f"wss://{at}", f"amqp://127.0.0.1:{server.port}"):
            await exchange(url, trusted if "s://" in url and url[0] != "m" else None)
        async with session.get(f"https://{at}/x", ssl=trusted) as answer:
            assert await answer.text() == f"GET|/x||https://{at}||True|"
        async with session.get(f"http://127.0.0.1:{server.port}/x") as answer:
            assert await answer.text() == f"GET|/x||http://127.0.0.1:{server.port}||False|"
        await session.close()
        await empty(server)


def test_the_event_loop_of_the_process(pki: Pki) -> None:
    """`ferrymq serve` runs on uvloop, whose transports are others."""

    async def work() -> None:
        limits = Limits(handshake_timeout=2.0)
        async with serving(pki.tls(), "any://127.0.0.1:0", limits=limits) as server:
            server.http_handlers.mount("default", "", hello)
            at = f"localhost:{server.port}"
            for url in (f"amqps://{at}", f"wss://{at}", f"amqp://{at}", f"ws://{at}"):
                await exchange(url, pki.trusting() if "s:" in url and url[:3] != "ws:" else None)
            async with aiohttp.ClientSession() as session:
                for url, trusted in ((f"https://{at}/x", pki.trusting()), (f"http://{at}/x", True)):
                    async with session.get(url, ssl=trusted) as answer:
                        assert answer.status == 200
            await asyncio.gather(
                *(
                    answer_to(server.port, said)
                    for said in (b"\x16\x03\x01\x00\x05hello", b"rubbish", AMQP)
                )
            )
            await empty(server)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(work(), 60))


async def test_a_certificate_logs_in(pki: Pki) -> None:
    rule = {"certificate_rule": [{"pattern": "alice"}]}
    async with serving(pki.asking(), "any://127.0.0.1:0", security=rule) as server:
        url = f"amqps://localhost:{server.port}"
        context = pki.trusting("alice")
        async with ferrymq.connect(url, ssl=context, sasl=External()) as connection:
            await connection.sender("orders")
            (protocol,) = server.connections
            assert protocol.handler.client.user == "alice"


async def test_proton_sends_over_it(server: BrokerServer) -> None:
    def send() -> object:
        connection = BlockingConnection(f"amqp://127.0.0.1:{server.port}", timeout=20)
        try:
            connection.create_sender("orders").send(ProtonMessage(body="hello"))
            receiver = connection.create_receiver("orders")
            return receiver.receive(timeout=20).body
        finally:
            connection.close()

    assert await asyncio.to_thread(send) == "hello"


@pytest.mark.parametrize("cut", range(1, 9))
async def test_first_bytes_in_pieces(server: BrokerServer, cut: int) -> None:
    assert await answer_to(server.port, AMQP[:cut], AMQP[cut:], most=len(AMQP)) == AMQP
    got = await answer_to(server.port, GET[:cut], GET[cut:])
    assert got.startswith(b"HTTP/1.1 200") and b"GET|/hello" in got


@pytest.mark.parametrize("rubbish", [b"\x00" * 8, b"nonsense\r\n", b"PRI * HTTP/2.0\r\n\r\n"])
async def test_rubbish_gets_the_header_of_amqp(server: BrokerServer, rubbish: bytes) -> None:
    assert (await answer_to(server.port, rubbish))[:4] == b"AMQP"
    await empty(server)


async def test_tls_without_a_certificate_is_refused(server: BrokerServer) -> None:
    assert (await answer_to(server.port, b"\x16\x03\x01\x00\x05hello"))[:4] == b"AMQP"
    with pytest.raises(ssl.SSLError):
        await asyncio.open_connection("127.0.0.1", server.port, ssl=ssl.create_default_context())
    await empty(server)


@pytest.mark.parametrize(
    "said",
    [b"", b"O", b"GET", b"GET /hello HTTP/1.1\r\n", AMQP,
     b"PUT /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nslow"],
    ids=["nothing", "a letter", "a method", "a line", "a header", "half a body"],
)  # fmt: skip
async def test_a_slow_client_is_let_go(impatient: BrokerServer, said: bytes) -> None:
    await answer_to(impatient.port, said)
    await empty(impatient)


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02", b"GET", b"AM"])
async def test_a_slow_client_inside_tls_is_let_go(pki: Pki, said: bytes) -> None:
    limits = Limits(handshake_timeout=1.0)
    async with serving(pki.tls(), "any://127.0.0.1:0", limits=limits) as server:
        await asyncio.gather(
            answer_to(server.port, said, context=pki.trusting()), answer_to(server.port, said)
        )
        await empty(server)


async def test_time_before_the_first_byte_counts_for_the_open(server: BrokerServer) -> None:
    """The handshake's deadline begins when the connection is accepted."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    while not len(server.connection_limits):  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    accepted = server.clock.now()
    await asyncio.sleep(0.3)
    writer.write(AMQP)
    assert await reader.readexactly(8) == AMQP
    (protocol,) = server.connections
    due = protocol.handler.next_deadline()
    assert due is not None and due <= accepted + 1.0
    writer.close()
    await empty(server)


async def test_bounds_of_requests(server: BrokerServer, session: aiohttp.ClientSession) -> None:
    url = f"http://127.0.0.1:{server.port}/hello"
    async with session.put(url, data=b"x" * MOST_BODY) as answer:
        assert answer.status == 200
    async with session.put(url, data=b"x" * (MOST_BODY + 1)) as answer:
        assert answer.status == 413
    async with session.put(url, data=b"x", headers={"Content-Encoding": "gzip"}) as answer:
        assert answer.status == 415
    async with session.get(url, headers={"Origin": "https://app.example"}) as answer:
        assert answer.status == 403
    endless = b"GET /hello HTTP/1.1\r\nX: " + b"x" * MOST_EARLY_BYTES
    assert b" 200 " not in await answer_to(server.port, endless)


async def test_a_handler_that_fails_or_ends_the_connection(
    server: BrokerServer, session: aiohttp.ClientSession
) -> None:
    def broken(request: HttpRequest) -> HttpResponse:
        raise RuntimeError("never seen by the client")

    server.http_handlers.mount("default", "/broken", broken)
    server.http_handlers.mount("default", "/last", lambda request: HttpResponse(401, close=True))
    async with session.get(f"http://127.0.0.1:{server.port}/broken") as answer:
        assert answer.status == 500 and "never" not in await answer.text()
    got = await answer_to(server.port, GET.replace(b"/hello", b"/last"))
    assert got.startswith(b"HTTP/1.1 401")
    await empty(server)


async def test_the_response_waits_for_the_store(
    tmp_path: Path, session: aiohttp.ClientSession
) -> None:
    config = Config(listener=[Listener(url="any://127.0.0.1:0")], store=Store(path=tmp_path))
    async with BrokerServer(config) as server:
        changes = server.broker.agenda.changes
        need: list[int] = []

        def create(request: HttpRequest) -> HttpResponse:
            server.broker.default.create("made", QueuePolicy())
            need.append(int(changes.number))
            return HttpResponse(201)

        server.http_handlers.mount("default", "", create)
        async with session.put(f"http://127.0.0.1:{server.port}/made") as answer:
            assert answer.status == 201 and changes.stable >= need[0]
        await session.close()
    async with BrokerServer(config) as server:
        assert "made" in server.broker.default.nodes


async def test_nobody_waits_for_unknown_connections_at_the_end() -> None:
    async with BrokerServer(Config(listener=[Listener(url="any://127.0.0.1:0")])) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        while not len(server.connection_limits):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    async with asyncio.timeout(20):
        try:
            assert await reader.read() == b""
        except ConnectionError:
            pass
    writer.close()


def test_the_longest_prefix_counts() -> None:
    handlers = HttpHandlers()
    assert handlers.find("default", "/a") is None
    first = lambda request: HttpResponse(200)  # noqa: E731
    second = lambda request: HttpResponse(200)  # noqa: E731
    handlers.mount("default", "/a", first)
    handlers.mount("default", "/a/b", second)

    def found(path: str) -> object:
        mounted = handlers.find("default", path)
        return None if mounted is None else mounted.handle

    assert found("/a/") is first
    assert found("/a/bc") is first
    assert found("/a/b/c/d") is second
    assert handlers.find("default", "/") is None
    assert handlers.find("other", "/a") is None
    with pytest.raises(ValueError, match="has a handler already"):
        handlers.mount("default", "/a", first)


def test_settings_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text('[[listener]]\nurl = "any://127.0.0.1:0"\n[listener.tls]\nciphers = "x"\n')
    with pytest.raises(ConfigError, match="there is no certificate"):
        load_config(path)
    path.write_text('[[listener]]\nurl = "any://127.0.0.1:0"\nupgrade-tls = "offered"\n')
    with pytest.raises(ConfigError, match="only amqp://"):
        load_config(path)
    path.write_text('[[listener]]\nurl = "any://127.0.0.1"\norigins = "*"\n')
    assert load_config(path).listener[0].address.port == 5672


async def test_a_handler_can_have_names_and_passwords_checked() -> None:
    def who(request: HttpRequest) -> HttpResponse:
        identity = request.identity
        return HttpResponse(200, b"nobody" if identity is None else str(identity.user).encode())

    config = Config.model_validate(
        {
            "listener": [{"url": "any://127.0.0.1:0"}],
            "security": {"users": {"alice": "right"}, "failed-logins": 3},
        }
    )
    async with BrokerServer(config) as server, aiohttp.ClientSession() as session:
        server.http_handlers.mount("default", "/asks", who, login=True)
        server.http_handlers.mount("default", "/plain", who)

        async def answer(path: str, password: str = "") -> bytes:
            login = aiohttp.encode_basic_auth("alice", password)
            headers = {"Authorization": login} if password else {}
            url = f"http://127.0.0.1:{server.port}/{path}"
            async with session.get(url, headers=headers) as response:
                return await response.read()

        assert await answer("asks", "right") == b"alice"
        assert await answer("asks") == b"nobody"
        assert await answer("plain", "right") == b"nobody"
        # Guessing is limited as it is over AMQP.
        for _ in range(3):
            assert await answer("asks", "wrong") == b"nobody"
        assert await answer("asks", "right") == b"nobody"


async def test_a_handler_works_in_steps(
    server: BrokerServer, session: aiohttp.ClientSession
) -> None:
    passes: list[int] = []

    def slowly(request: HttpRequest) -> HttpSteps:
        for step in range(3):
            passes.append(step)
            asyncio.get_running_loop().call_soon(passes.append, -step)
            yield
        return HttpResponse(200, b"done")

    server.http_handlers.mount("default", "/slow", slowly)
    async with session.get(f"http://127.0.0.1:{server.port}/slow") as response:
        assert await response.read() == b"done"
    # The event loop did other work between the steps.
    assert passes == [0, 0, 1, -1, 2, -2]
