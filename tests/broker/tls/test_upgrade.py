"""TLS inside AMQP, on a port that begins in the clear (AMQP 1.0 §5.2)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

import pytest
import uvloop

import ferrymq
from ferrymq import Message
from tests.broker.tls.pki import Pki, serving
from tests.broker.tls.test_amqps import client_hello

PLAIN = "amqp://127.0.0.1:0"
AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
TLS_HEADER = b"AMQP\x02\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
# A whole exchange as an attacker would like to have it taken: SASL ANONYMOUS, then an open.
INJECTED = (
    SASL_HEADER + bytes.fromhex("0000001902010000005341c00c01a309") + b"ANONYMOUS" + AMQP_HEADER
)


@pytest.mark.spec("5.2")
@pytest.mark.parametrize(
    "loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
@pytest.mark.parametrize("upgrade", ["offered", "required"])
def test_messages_over_tls_inside_amqp(
    pki: Pki, loop: Callable[[], asyncio.AbstractEventLoop], upgrade: str
) -> None:
    async def exchange() -> None:
        async with serving(pki.tls(), PLAIN, upgrade_tls=upgrade) as server:
            url = f"amqp://localhost:{server.port}"
            async with ferrymq.connect(url, ssl=pki.trusting(), upgrade_tls=True) as connection:
                sender = await connection.sender("orders")
                receiver = await connection.receiver("orders")
                await sender.send(Message(body=b"x" * 1_000_000))
                delivery = await receiver.receive(timeout=20)
                assert delivery.message.body == b"x" * 1_000_000
                (protocol,) = server.connections
                transport = protocol.handler.client.transport
                assert transport.encrypted and transport.tls_version.startswith("TLSv1.")
                await delivery.accept()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(exchange())


async def talk(port: int, data: bytes) -> bytes:
    """What a client gets until the end when it sends this and nothing more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.spec("5.2")
async def test_where_it_is_offered_the_clear_is_good_too(pki: Pki) -> None:
    async with (
        serving(pki.tls(), PLAIN, upgrade_tls="offered") as server,
        ferrymq.connect(f"amqp://localhost:{server.port}") as connection,
    ):
        await connection.sender("orders")
        (protocol,) = server.connections
        assert not protocol.handler.client.transport.encrypted


@pytest.mark.spec("5.2")
@pytest.mark.spec("2.2")
@pytest.mark.parametrize("header", [AMQP_HEADER, SASL_HEADER, client_hello()])
async def test_where_it_is_required_everything_else_is_answered_with_its_header(
    pki: Pki, header: bytes
) -> None:
    async with serving(pki.tls(), PLAIN, upgrade_tls="required") as server:
        assert await talk(server.port, header) == TLS_HEADER


@pytest.mark.spec("2.2")
async def test_where_it_is_off_it_is_refused(pki: Pki) -> None:
    async with serving(pki.tls(), PLAIN) as server:
        assert await talk(server.port, TLS_HEADER) == AMQP_HEADER


@pytest.mark.spec("5.2")
@pytest.mark.parametrize("upgrade", ["offered", "required"])
async def test_what_is_slipped_in_before_the_handshake_is_never_taken(
    pki: Pki, upgrade: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As in STARTTLS injection: cleartext behind the header, to be read as if it were encrypted."""
    async with serving(pki.tls(), PLAIN, upgrade_tls=upgrade) as server:
        answer = await talk(server.port, TLS_HEADER + INJECTED)
        # Our header, perhaps an alert; no SASL frame, and nobody has logged in.
        assert answer[:8] == TLS_HEADER
        assert not answer[8:] or answer[8] == 21
        answer = await talk(server.port, TLS_HEADER + INJECTED + client_hello())
        assert answer[:8] == TLS_HEADER and b"ANONYMOUS" not in answer
        assert server.broker.counters.connections_opened == 0
    assert "TLS failed" in caplog.text


@pytest.mark.spec("5.2")
async def test_a_hello_right_behind_the_header_is_the_beginning_of_the_handshake(
    pki: Pki,
) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = pki.trusting().wrap_bio(incoming, outgoing, server_hostname="localhost")
    async with serving(pki.tls(), PLAIN, upgrade_tls="required") as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(TLS_HEADER)
        async with asyncio.timeout(20):
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    writer.write(outgoing.read())
                    data = await reader.read(65536)
                    assert data
                    incoming.write(data.removeprefix(TLS_HEADER))
            # In one piece with the end of the handshake, as clients do that do not wait.
            tls.write(AMQP_HEADER)
            writer.write(outgoing.read())
            answer = b""
            while len(answer) < 8:
                incoming.write(await reader.read(65536))
                try:
                    answer += tls.read(65536)
                except ssl.SSLWantReadError:
                    continue
        writer.close()
    assert answer == AMQP_HEADER


@pytest.mark.spec("5.2")
async def test_tls_is_not_begun_twice(pki: Pki) -> None:
    async with serving(pki.tls(), PLAIN, upgrade_tls="offered") as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(TLS_HEADER)
        async with asyncio.timeout(20):
            assert await reader.readexactly(8) == TLS_HEADER
            await writer.start_tls(pki.trusting(), server_hostname="localhost")
            writer.write(TLS_HEADER)
            assert await reader.read() == AMQP_HEADER
        writer.close()


async def test_a_stalled_upgrade_has_its_time(pki: Pki) -> None:
    limits = {"handshake_timeout": 0.3}
    async with serving(pki.tls(), PLAIN, upgrade_tls="offered", limits=limits) as server:
        assert await talk(server.port, TLS_HEADER) == TLS_HEADER


async def test_a_password_is_only_asked_for_when_nobody_can_listen(pki: Pki) -> None:
    """Which mechanisms there are is decided again when TLS is there."""
    security = {"certificate_rule": [{"name_from": "subject-cn"}]}
    async with serving(pki.asking(), PLAIN, upgrade_tls="offered", security=security) as server:
        url = f"amqp://localhost:{server.port}"
        external = ferrymq.engine.sasl.External()
        with pytest.raises(ferrymq.AmqpError):
            await ferrymq.connect(url, sasl=external)
        async with ferrymq.connect(
            url, ssl=pki.trusting("alice"), upgrade_tls=True, sasl=external
        ) as connection:
            await connection.sender("orders")
            (protocol,) = server.connections
            assert protocol.handler.client.user == "alice"
