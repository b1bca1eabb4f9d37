"""What comes to a WebSocket listener and does not belong there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from ferrymq_broker.config import Config
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.config.limits import Limits
from ferrymq_broker.config.listeners import Listener
from ferrymq_broker.config.load import load_config
from ferrymq_broker.server import BrokerServer
from ferrymq_broker.server.websocket_limits import MOST_EARLY_BYTES
from tests.broker.websocket.waiting import empty

# That of AMQP, with no layer below it.
HEADER = b"AMQP\x00\x01\x00\x00"


@pytest.fixture
async def server() -> AsyncIterator[BrokerServer]:
    listener = Listener(url="ws://127.0.0.1:0", origins=["https://app.example"])
    limits = Limits(handshake_timeout=1.0)
    async with BrokerServer(Config(listener=[listener], limits=limits)) as server:
        yield server


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def web(server: BrokerServer, path: str = "/") -> str:
    return f"http://127.0.0.1:{server.port}{path}"


@pytest.mark.parametrize(
    ("path", "status"), [("/", 426), ("/$servicebus/websocket", 404), ("/x", 404), ("//x", 404)]
)
async def test_a_browser_gets_an_answer(
    server: BrokerServer, session: aiohttp.ClientSession, path: str, status: int
) -> None:
    async with session.get(web(server, path)) as answer:
        assert answer.status == status


async def test_a_post_is_refused(server: BrokerServer, session: aiohttp.ClientSession) -> None:
    async with session.post(web(server), data=b"x") as answer:
        assert answer.status == 405


@pytest.mark.parametrize("protocols", [(), ("mqtt",), ("amqp2",)])
async def test_another_subprotocol_is_refused(
    server: BrokerServer, session: aiohttp.ClientSession, protocols: tuple[str, ...]
) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as error:
        await session.ws_connect(web(server), protocols=protocols)
    assert error.value.status == 400


async def test_one_of_several_subprotocols_is_ours(
    server: BrokerServer, session: aiohttp.ClientSession
) -> None:
    async with session.ws_connect(web(server), protocols=("mqtt", "amqp")) as websocket:
        assert websocket.protocol == "amqp"
        await websocket.send_bytes(HEADER)
        message = await websocket.receive()
        assert message.data.startswith(HEADER)


@pytest.mark.parametrize(
    "origin", ["http://127.0.0.1", "https://app.example.evil", "http://app.example", "null", ""]
)
async def test_pages_of_other_origins_are_refused(
    server: BrokerServer, session: aiohttp.ClientSession, origin: str
) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as error:
        await session.ws_connect(web(server), protocols=("amqp",), origin=origin)
    assert error.value.status == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_the_brokers_own_origin_is_let_in(
    server: BrokerServer, session: aiohttp.ClientSession, host: str
) -> None:
    own = f"http://{host}:{server.port}"
    async with session.ws_connect(
        web(server), protocols=("amqp",), headers={"Host": f"{host}:{server.port}"}, origin=own
    ) as websocket:
        assert websocket.protocol == "amqp"


async def test_a_name_that_was_made_to_lead_here_is_refused(
    server: BrokerServer, session: aiohttp.ClientSession
) -> None:
    """DNS rebinding: the page and the request have the same host."""
    host = f"page.example:{server.port}"
    with pytest.raises(aiohttp.WSServerHandshakeError) as error:
        await session.ws_connect(
            web(server), protocols=("amqp",), headers={"Host": host}, origin=f"http://{host}"
        )
    assert error.value.status == 403


async def test_pages_of_a_listed_origin_are_let_in(
    server: BrokerServer, session: aiohttp.ClientSession
) -> None:
    async with session.ws_connect(
        web(server), protocols=("amqp",), origin="https://APP.example"
    ) as websocket:
        assert websocket.protocol == "amqp"


@pytest.mark.parametrize("origins", ["*", ["*"]])
@pytest.mark.parametrize("origin", ["https://any.example", "null"])
async def test_a_star_lets_in_the_pages_of_every_origin(
    session: aiohttp.ClientSession, origins: object, origin: str
) -> None:
    listener = Listener.model_validate({"url": "ws://127.0.0.1:0", "origins": origins})
    async with (
        BrokerServer(Config(listener=[listener])) as server,
        session.ws_connect(web(server), protocols=("amqp",), origin=origin) as websocket,
    ):
        assert websocket.protocol == "amqp"


@pytest.mark.parametrize("headers", [{}, {"Upgrade": "websocket"}, {"Origin": "null"}])
async def test_no_answer_says_which_software_it_is(
    server: BrokerServer, session: aiohttp.ClientSession, headers: dict[str, str]
) -> None:
    for path in ("/", "/nothing"):
        async with session.get(web(server, path), headers=headers) as response:
            assert response.status >= 400 and "Server" not in response.headers
    async with session.ws_connect(web(server), protocols=("amqp",)) as websocket:
        assert "Server" not in websocket._response.headers


@pytest.mark.parametrize(
    "said", [b"nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x00\xff\r\n\r\n"]
)
async def test_nor_does_the_answer_to_what_is_no_http(server: BrokerServer, said: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(said)
    async with asyncio.timeout(30):
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.") and b" 400 " in answer
    assert b"server:" not in answer.lower() and b"aiohttp" not in answer.lower()
    writer.close()


async def test_text_is_no_amqp(server: BrokerServer, session: aiohttp.ClientSession) -> None:
    async with session.ws_connect(web(server), protocols=("amqp",)) as websocket:
        await websocket.send_str("AMQP")
        message = await websocket.receive()
        assert message.type is aiohttp.WSMsgType.CLOSE
        assert message.data == 1003
    await empty(server)


async def test_much_before_the_open_ends_it(
    server: BrokerServer, session: aiohttp.ClientSession
) -> None:
    """A message may be large; from somebody who has not opened it may not."""
    async with session.ws_connect(web(server), protocols=("amqp",)) as websocket:
        try:
            await websocket.send_bytes(b"\x00" * (MOST_EARLY_BYTES + 1))
            message = await websocket.receive()
            assert message.type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)
        except ConnectionError:
            # It was gone before all of it was sent.
            pass
    await empty(server)


@pytest.mark.parametrize(
    "said",
    [b"", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n", b"\x16\x03\x01", HEADER],
    ids=["nothing", "a line", "a header", "TLS", "AMQP"],
)
async def test_who_asks_for_no_websocket_in_time_is_let_go(
    server: BrokerServer, said: bytes
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(said)
    try:
        async with asyncio.timeout(30):
            await reader.read()
    except ConnectionError:
        pass
    writer.close()
    await empty(server)


async def test_who_opens_no_connection_in_time_is_let_go(
    server: BrokerServer, session: aiohttp.ClientSession
) -> None:
    async with session.ws_connect(web(server), protocols=("amqp",)) as websocket:
        message = await websocket.receive(timeout=30)
        assert message.type is not aiohttp.WSMsgType.BINARY
    await empty(server)


def test_origins_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text('[[listener]]\nurl = "ws://127.0.0.1:0"\norigins = ["app.example"]\n')
    with pytest.raises(ConfigError, match="an origin is https://HOST"):
        load_config(path)
    path.write_text('[[listener]]\nurl = "amqp://127.0.0.1:0"\norigins = ["*"]\n')
    with pytest.raises(ConfigError, match="only ws://, wss:// and any:// listeners"):
        load_config(path)
