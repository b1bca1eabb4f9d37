"""What answers where a broker was expected is recognised, and said with what to change."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import re
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import ferrymq
from ferrymq.options import ConnectionArguments
from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer
from ferrymq_types.security import SaslCode
from tests.client.peer import Peer

CERTIFICATE = Path(__file__).parent / "tls" / "localhost.pem"
RABBITMQ = b"AMQP\x00\x00\x09\x01"


@contextlib.asynccontextmanager
async def answering(answer: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Listen, and answer the first bytes with `answer` and the end; the result is the port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read(8)
            writer.write(answer)
            await writer.drain()
            writer.write_eof()
            await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("answer", "options", "said"),
    [
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            {},
            "the peer speaks HTTP here: connect to its port for AMQP, or with ws:// or wss:// if "
            "it takes AMQP over WebSocket",
        ),
        # An alert of TLS is shorter than a protocol header.
        (
            b"\x15\x03\x03\x00\x02\x02\x46",
            {},
            "the peer speaks TLS here: connect with amqps://, or to its port without TLS",
        ),
        (
            b"\x15\x03\x03\x00\x02\x02\x46more",
            {},
            "the peer speaks TLS here: connect with amqps://, or to its port without TLS",
        ),
        (
            RABBITMQ,
            {},
            "the peer speaks AMQP 0-9-1 here, not AMQP 1.0: RabbitMQ has AMQP 1.0 from version 4 "
            "on, before by the plugin rabbitmq_amqp1_0",
        ),
        (b"AMQP\x01\x01\x00\x0a", {}, "the peer speaks AMQP 0-10 here, not AMQP 1.0"),
        (
            b"AMQP\x00\x02\x00\x00",
            {},
            "the peer does not speak AMQP 1.0 here; its protocol header is "
            r"b'AMQP\x00\x02\x00\x00'",
        ),
        (
            b"AMQP\x02\x01\x00\x00",
            {},
            "the peer requires TLS here: connect with amqps://, or with upgrade_tls=True",
        ),
        (
            b"AMQP\x00\x01\x00\x00",
            {},
            "the peer has no SASL here: connect with sasl=None, without user name and password",
        ),
        (
            b"AMQP\x03\x01\x00\x00",
            {"sasl": None},
            "the peer requires SASL: connect without sasl=None, and with a user name and password "
            "if it asks for them",
        ),
        (
            b"AMQP\x00\x01\x00\x00",
            {"upgrade_tls": True},
            "the peer has no TLS inside AMQP here: connect with amqps:// if it has a port for "
            "TLS, or without upgrade_tls",
        ),
        (
            b"SSH-2.0-OpenSSH_9.6\r\n",
            {},
            "the peer does not speak AMQP here; it sent b'SSH-2.0-'",
        ),
        (
            b"",
            {},
            "the peer ended the transport without a close and without an answer: check the port, "
            "and whether it is one for TLS (amqps://) or not (amqp://)",
        ),
    ],
)
async def test_an_answer_that_is_not_ours(
    answer: bytes, options: ConnectionArguments, said: str
) -> None:
    async with answering(answer) as port:
        with pytest.raises((ferrymq.TransportError, ferrymq.ConnectionClosed)) as raised:
            await ferrymq.connect(f"amqp://alice:secret@127.0.0.1:{port}", timeout=20, **options)
    text = str(raised.value)
    assert said in text
    assert f"amqp://alice@127.0.0.1:{port}" in text and "secret" not in text


@pytest.fixture
def server_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(CERTIFICATE))
    return context


@pytest.mark.parametrize("answer", [b"AMQP\x03\x01\x00\x00", RABBITMQ, b"HTTP/1.1 400 Bad\r\n"])
async def test_tls_to_a_plain_port(answer: bytes) -> None:
    async with answering(answer) as port:
        said = rf"cannot connect to amqps://127\.0\.0\.1:{port}: the peer speaks no TLS here: "
        with pytest.raises(ferrymq.TransportError, match=said + "connect with amqp://"):
            await ferrymq.connect(f"amqps://127.0.0.1:{port}", timeout=20)


async def test_tls_to_a_port_that_hangs_up() -> None:
    async with answering(b"") as port:
        with pytest.raises(ferrymq.TransportError, match="if this is a port without TLS, connect"):
            await ferrymq.connect(f"amqps://127.0.0.1:{port}", timeout=20)


async def test_no_tls_to_a_port_for_tls(server_tls: ssl.SSLContext) -> None:
    async with Peer(tls=server_tls) as peer:
        with pytest.raises(ferrymq.AmqpError, match=r"amqps://"):
            await ferrymq.connect(f"amqp://localhost:{peer.port}", timeout=20)


@pytest.fixture
async def broker() -> AsyncIterator[BrokerServer]:
    config = Config.model_validate(
        {
            "listener": [
                {"url": "amqp://127.0.0.1:0"},
                {"url": "ws://127.0.0.1:0"},
            ],
            "security": {"anonymous": False, "users": {"alice": "right"}},
        }
    )
    async with BrokerServer(config) as server:
        yield server


async def test_websocket_and_plain_ports_of_the_broker(broker: BrokerServer) -> None:
    plain, web = [address.url for address in broker.addresses]
    for url, said in (
        (plain.replace("amqp:", "amqps:"), "the peer speaks no TLS here: connect with amqp://"),
        (web.replace("ws:", "wss:"), "the peer speaks no TLS here: connect with ws://"),
        (web.replace("ws:", "amqp:"), "the peer speaks HTTP here: connect to its port"),
        (plain.replace("amqp:", "ws:"), "the peer speaks no HTTP here: connect with amqp://"),
    ):
        with pytest.raises((ferrymq.AmqpError, TimeoutError), match=said):
            await ferrymq.connect(url, timeout=1)


@pytest.fixture
def web() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


async def test_a_web_server_that_waits_for_the_end_of_the_line(web: int) -> None:
    with pytest.raises(TimeoutError, match="is this a port of AMQP, and without TLS"):
        await ferrymq.connect(f"amqp://127.0.0.1:{web}", timeout=0.2)


async def test_a_wrong_password_and_none(broker: BrokerServer) -> None:
    place = broker.url.removeprefix("amqp://")
    for user, password in (("alice", "wrong"), ("nobody", "right")):
        with pytest.raises(ferrymq.AuthenticationError) as raised:
            await ferrymq.connect(f"amqp://{user}:{password}@{place}")
        assert str(raised.value) == (
            f"amqp://{user}@{place}: the server refused SASL SCRAM-SHA-512 of user '{user}': the "
            "credentials are wrong"
        )
        assert raised.value.code == SaslCode.AUTH.value
    with pytest.raises(ferrymq.AuthenticationError) as raised:
        await ferrymq.connect(broker.url)
    assert re.fullmatch(
        rf"amqp://{re.escape(place)}: the server offers SASL SCRAM-.*, not ANONYMOUS: log in with "
        r"a user name and password in the URL, or with token= or sasl=",
        str(raised.value),
    )


async def test_nobody_listens_and_no_such_host() -> None:
    async with answering(b"") as port:
        pass
    said = "nothing listens there: is the broker running, and is the port right?"
    with pytest.raises(ferrymq.TransportError, match=re.escape(said)):
        await ferrymq.connect(f"amqp://127.0.0.1:{port}")
    with pytest.raises(ferrymq.TransportError, match=re.escape(said)):
        await ferrymq.connect(f"amqp://localhost:{port}")
    with pytest.raises(ferrymq.TransportError, match=r"the host 'no\.invalid' is not known"):
        await ferrymq.connect("amqp://no.invalid", timeout=20)
