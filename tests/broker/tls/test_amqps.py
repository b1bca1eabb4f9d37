"""Connections that begin with TLS."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from datetime import timedelta

import pytest
import uvloop

import ferrymq
from ferrymq import Message
from tests.broker.tls.pki import Pki, serving

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


@pytest.mark.parametrize("loop", LOOPS, ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_messages_of_all_sizes(
    pki: Pki, loop: Callable[[], asyncio.AbstractEventLoop], version: str
) -> None:
    async def exchange() -> None:
        context = pki.trusting()
        context.maximum_version = ssl.TLSVersion[version]
        async with serving(pki.tls()) as server:
            url = f"amqps://localhost:{server.port}"
            async with (
                ferrymq.connect(url, ssl=context) as connection,
                connection.sender("orders") as sender,
                connection.receiver("orders") as receiver,
            ):
                for size in (0, 1, 16_384, 16_385, 3_000_000):
                    await sender.send(Message(body=b"x" * size))
                    delivery = await receiver.receive(timeout=20)
                    assert delivery.message.body == b"x" * size
                    await delivery.accept()
            assert server.url.startswith("amqps://")

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(exchange())


async def until(condition: Callable[[], bool]) -> None:
    """Give the loop to others until it holds."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def test_a_client_that_does_not_read_is_waited_for(pki: Pki) -> None:
    async with serving(pki.tls()) as server:
        url = f"amqps://localhost:{server.port}"
        async with ferrymq.connect(url, ssl=pki.trusting()) as connection:
            sender = await connection.sender("orders")
            for _ in range(40):
                sender.send_nowait(Message(body=b"x" * 1_000_000))
            receiver = await connection.receiver("orders", credit=0)
            transport = next(iter(server.connections))
            client = connection._transport._transport  # type: ignore[attr-defined]
            client.pause_reading()
            receiver.add_credit(40)
            async with asyncio.timeout(20):
                await until(lambda: transport.handler.output.paused)
            assert transport._transport.get_write_buffer_size() < 8 * 1024 * 1024
            client.resume_reading()
            for _ in range(40):
                await (await receiver.receive(timeout=20)).accept()


async def test_the_host_has_to_be_the_one_of_the_certificate(pki: Pki) -> None:
    pki.write("other", pki.authority.server(["elsewhere.example"], 1))
    async with serving(pki.tls("other")) as server:
        with pytest.raises(ferrymq.TransportError, match="Hostname mismatch"):
            await ferrymq.connect(f"amqps://localhost:{server.port}", ssl=pki.trusting())


async def test_an_expired_certificate_is_told_and_no_client_takes_it(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    pki.write("old", pki.authority.server(["localhost"], -1))
    async with serving(pki.tls("old")) as server:
        assert "the certificate has expired" in caplog.text
        with pytest.raises(ferrymq.TransportError, match="certificate has expired"):
            await ferrymq.connect(f"amqps://localhost:{server.port}", ssl=pki.trusting())


async def test_another_authority_is_not_trusted(pki: Pki) -> None:
    pki.write("fake", pki.stranger.server(["localhost"], 1))
    async with serving(pki.tls("fake")) as server:
        with pytest.raises(ferrymq.TransportError, match="the certificate of the peer is not good"):
            await ferrymq.connect(f"amqps://localhost:{server.port}", ssl=pki.trusting())


async def test_amqp_in_the_clear_gets_an_alert_and_the_end(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(pki.tls()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"AMQP\x03\x01\x00\x00" + b"x" * 4000)
        async with asyncio.timeout(20):
            answer = await reader.read()
        writer.close()
    # Nothing that could be taken for AMQP: an alert, if anything.
    assert not answer or answer[0] == 21
    assert "TLS failed" in caplog.text and "Traceback" not in caplog.text


async def test_tls_on_a_port_without_gets_an_amqp_header_and_the_end(pki: Pki) -> None:
    async with serving(pki.tls(), "amqp://127.0.0.1:0") as server:
        async with asyncio.timeout(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(client_hello())
            assert await reader.read() == b"AMQP\x00\x01\x00\x00"
            writer.close()
            with pytest.raises(ferrymq.TransportError, match="speaks no TLS here"):
                await ferrymq.connect(f"amqps://localhost:{server.port}", ssl=pki.trusting())


def client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context()
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("begin", [b"", b"\x16\x03\x01", client_hello()[:-1]])
async def test_a_handshake_that_stalls_has_its_time(pki: Pki, begin: bytes) -> None:
    async with serving(pki.tls(), limits={"handshake_timeout": 0.3}) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(begin)
        async with asyncio.timeout(20):
            assert await reader.read() == b""
            await until(lambda: not server.connections)
        writer.close()


async def test_the_time_for_all_layers_is_one(pki: Pki) -> None:
    """TLS does not begin a new count."""
    async with serving(pki.tls(), limits={"handshake_timeout": 0.5}) as server:
        async with asyncio.timeout(20):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=pki.trusting(), server_hostname="localhost"
            )
            assert await reader.read() == b""
            writer.close()


def weak_client(**changes: object) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("ALL:aNULL:eNULL:@SECLEVEL=0")
    for name, value in changes.items():
        setattr(context, name, value)
    return context


async def alert_for(server_port: int, context: ssl.SSLContext) -> str:
    with pytest.raises(ssl.SSLError) as caught:
        await asyncio.open_connection("127.0.0.1", server_port, ssl=context)
    return str(caught.value.reason)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_old_versions_are_refused(pki: Pki) -> None:
    async with serving(pki.tls()) as server:
        old = weak_client(
            minimum_version=ssl.TLSVersion.TLSv1, maximum_version=ssl.TLSVersion.TLSv1_1
        )
        assert "PROTOCOL_VERSION" in await alert_for(server.port, old)
    async with serving(pki.tls(minimum_version="1.3")) as server:
        older = weak_client(maximum_version=ssl.TLSVersion.TLSv1_2)
        assert "PROTOCOL_VERSION" in await alert_for(server.port, older)


@pytest.mark.parametrize(
    "ciphers", ["aNULL:@SECLEVEL=0", "eNULL:@SECLEVEL=0", "AES128-SHA", "ECDHE-ECDSA-AES128-SHA"]
)
async def test_weak_ciphers_are_refused(pki: Pki, ciphers: str) -> None:
    weak = weak_client(maximum_version=ssl.TLSVersion.TLSv1_2)
    weak.set_ciphers(ciphers)
    async with serving(pki.tls()) as server:
        assert "HANDSHAKE_FAILURE" in await alert_for(server.port, weak)


async def test_rubbish_in_the_middle_costs_that_connection(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with serving(pki.tls()) as server:
        url = f"amqps://localhost:{server.port}"
        async with ferrymq.connect(url, ssl=pki.trusting()) as other:
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = pki.trusting().wrap_bio(incoming, outgoing, server_hostname="localhost")
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            async with asyncio.timeout(timedelta(seconds=20).total_seconds()):
                while True:
                    try:
                        tls.do_handshake()
                        break
                    except ssl.SSLWantReadError:
                        writer.write(outgoing.read())
                        incoming.write(await reader.read(65536))
                writer.write(outgoing.read() + b"\x17\x03\x03\x00\x20" + b"r" * 32)
                await reader.read()
            writer.close()
            sender = await other.sender("orders")
            await sender.send(Message(body="still here"))
    assert "TLS failed" in caplog.text and "Traceback" not in caplog.text
