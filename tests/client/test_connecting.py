"""Connecting: SASL, TLS, the open, and what goes wrong before there is a connection."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from pathlib import Path

import pytest

import ferrymq
from ferrymq import Message
from ferrymq.engine import Plain, Scram, events
from ferrymq.engine.scram import ScramKeys
from ferrymq_types.security import SaslCode
from ferrymq_types.transport import Error
from tests.client.peer import Peer, PeerConnection

# Signs itself, names localhost, and holds its key: made for these tests and of no use elsewhere.
CERTIFICATE = Path(__file__).parent / "tls" / "localhost.pem"


async def test_without_a_user_sasl_is_anonymous(peer: Peer) -> None:
    async with ferrymq.connect(peer.url):
        request = await peer.seen(events.AuthenticationRequested)
        assert request.mechanism == "ANONYMOUS"
        assert request.hostname == "localhost"


async def test_a_user_in_the_url_means_plain(peer: Peer) -> None:
    url = peer.url.replace("localhost", "m%40e:s%3Ap@localhost")
    async with ferrymq.connect(url):
        request = await peer.seen(events.AuthenticationRequested)
        assert (request.mechanism, request.username) == ("PLAIN", "m@e")
        assert request.password == "s:p"


async def test_a_mechanism_can_be_given_or_left_out(peer: Peer) -> None:
    async with ferrymq.connect(peer.url, sasl=Plain("a", "b")):
        assert (await peer.seen(events.AuthenticationRequested)).username == "a"
    async with ferrymq.connect(peer.url, sasl=None):
        await peer.seen(events.OpenReceived, 2)
        assert peer.count(events.AuthenticationRequested) == 1


@pytest.mark.spec("5.3.3.2")
async def test_a_password_is_proved_where_the_server_can_check_proofs() -> None:
    url_user = "user:pencil@localhost"
    async with Peer(sasl_mechanisms=["PLAIN", "SCRAM-SHA-1", "SCRAM-SHA-256"]) as peer:
        peer.on[events.ScramKeysRequested] = lambda c, e: c.engine.provide_scram_keys(
            ScramKeys.derive(e.mechanism, "pencil")
        )
        async with ferrymq.connect(peer.url.replace("localhost", url_user)):
            request = await peer.seen(events.AuthenticationRequested)
            assert (request.mechanism, request.username) == ("SCRAM-SHA-256", "user")
            assert request.password is None


async def test_a_server_that_would_rather_have_the_password_does_not_get_it() -> None:
    async with Peer(sasl_mechanisms=["PLAIN"]) as peer:
        sasl = [Scram("SCRAM-SHA-256", "user", "pencil"), Scram("SCRAM-SHA-1", "user", "pencil")]
        with pytest.raises(ferrymq.AuthenticationError, match="offers SASL PLAIN"):
            await ferrymq.connect(peer.url, sasl=sasl)
        assert peer.count(events.AuthenticationRequested) == 0


@pytest.mark.spec("2.7.1")
async def test_a_capability_that_cannot_be_done_without(peer: Peer) -> None:
    with pytest.raises(ferrymq.AmqpError, match="flying, which is required"):
        await ferrymq.connect(peer.url, required_capabilities=["flying"])


@pytest.mark.spec("2.4.1")
async def test_an_open_that_is_too_large(peer: Peer) -> None:
    with pytest.raises(ValueError, match="512"):
        await ferrymq.connect(peer.url, properties={"a": "x" * 512})


@pytest.mark.spec("2.4.5")
async def test_tcp_keeps_alive_too(peer: Peer) -> None:
    async with ferrymq.connect(peer.url) as connection:
        transport = connection._transport
        assert transport is not None and transport._transport is not None
        connected = transport._transport.get_extra_info("socket")
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


@pytest.mark.spec("5.1")
async def test_the_end_of_a_layer_is_read_to_the_end() -> None:
    """A peer that still writes when we give up can do so to its end."""
    received = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        header = await reader.readexactly(8)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n")
        rest = await reader.read()
        # It has been told that nothing more comes, and can still speak.
        try:
            writer.write(b"x" * 4_000_000)
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        except OSError as error:
            received.set_exception(error)
        else:
            received.set_result(header + rest)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ferrymq.TransportError, match="the peer speaks HTTP here"):
            await ferrymq.connect(f"amqp://127.0.0.1:{port}", sasl=None)
        assert (await received)[:8] == b"AMQP\x00\x01\x00\x00"


async def test_wrong_credentials(peer: Peer) -> None:
    peer.on[events.AuthenticationRequested] = lambda c, _: c.engine.reject_authentication(
        SaslCode.AUTH
    )
    with pytest.raises(ferrymq.AuthenticationError) as caught:
        await ferrymq.connect(peer.url)
    assert caught.value.code == 1


async def test_a_mechanism_the_server_does_not_offer() -> None:
    async with Peer(sasl_mechanisms=["PLAIN"]) as peer:
        with pytest.raises(ferrymq.AuthenticationError, match="offers SASL PLAIN"):
            await ferrymq.connect(peer.url)


async def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(ferrymq.TransportError, match="cannot connect"):
            await ferrymq.connect(f"amqp://127.0.0.1:{port}")


async def test_a_server_that_says_nothing_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(TimeoutError):
            await ferrymq.connect(f"amqp://127.0.0.1:{port}", timeout=0.05)


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"AMQP\x00\x00\x09\x01", b""]
)
async def test_a_server_that_does_not_speak_amqp(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(ferrymq.AmqpError):
            await ferrymq.connect(f"amqp://127.0.0.1:{port}", sasl=None)


async def test_the_peer_refuses_the_open(peer: Peer) -> None:
    error = Error(condition="amqp:connection:forced", description="full")
    peer.on[events.OpenReceived] = lambda c, _: c.engine.close(error)
    with pytest.raises(ferrymq.ConnectionClosed, match="full") as caught:
        await ferrymq.connect(peer.url)
    assert caught.value.error == error


async def test_a_cancelled_connect_leaves_nothing(peer: Peer) -> None:
    peer.on[events.AuthenticationRequested] = lambda *_: None
    task = asyncio.ensure_future(ferrymq.connect(peer.url).open())
    await peer.seen(events.AuthenticationRequested)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await peer.connection.lost


async def test_what_the_opens_say(peer: Peer) -> None:
    async with ferrymq.connect(
        peer.url + "?container_id=me&hostname=vhost&idle_time_out=8&max_frame_size=4096",
        properties={"product": "test"},
        desired_capabilities=["a"],
        offered_capabilities=["b"],
    ) as connection:
        sent = (await peer.seen(events.OpenReceived)).open
        assert sent.container_id == connection.container_id == "me"
        assert sent.hostname == "vhost"
        assert sent.idle_time_out == 4000
        assert sent.max_frame_size == 4096
        assert sent.properties == {"product": "test"}
        # The client itself makes use of one, where it is offered.
        assert sent.desired_capabilities == ["a", "ANONYMOUS-RELAY"]
        assert sent.offered_capabilities == ["b"]
        assert connection.remote_container_id == "peer"
        assert connection.remote_properties == {}
        assert connection.remote_offered_capabilities == []
        assert str(peer.port) in repr(connection)


async def test_arguments_win_over_the_url(peer: Peer) -> None:
    async with ferrymq.connect(peer.url + "?container_id=url", container_id="argument"):
        assert (await peer.seen(events.OpenReceived)).open.container_id == "argument"


async def test_what_the_peer_says_about_itself() -> None:
    async with (
        Peer(properties={"product": "peer"}, offered_capabilities=["x"]) as peer,
        ferrymq.connect(peer.url) as connection,
    ):
        assert connection.remote_properties == {"product": "peer"}
        assert connection.remote_offered_capabilities == ["x"]


def upgrading(context: ssl.SSLContext) -> Peer:
    """A peer that takes nothing but TLS inside AMQP."""
    peer = Peer(tls_required=True, tls=None)
    peer._settings["tls"] = True

    def agreed(connection: PeerConnection, _: events.TlsAgreed) -> None:
        connection.transport.write(connection.engine.data_to_send())
        assert connection.engine.take_tls_data() == b""
        # What comes with the last of the handshake is decrypted before we hear of its end.
        connection.reading = False
        connection.handshake = asyncio.get_running_loop().create_task(secure(connection))

    async def secure(connection: PeerConnection) -> None:
        loop = asyncio.get_running_loop()
        plain = connection.transport
        try:
            secured = await loop.start_tls(plain, connection, context, server_side=True)
        except OSError as error:
            connection.connection_lost(error)
            return
        if secured is None:
            # The client has gone away during the handshake.
            connection.connection_lost(None)
            return
        connection.transport = secured
        connection.engine.tls_established(loop.time())
        connection.read_again()

    peer.on[events.TlsAgreed] = agreed
    return peer


class TestTls:
    @pytest.fixture
    def server(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(CERTIFICATE)
        return context

    async def test_messages_over_tls(self, server: ssl.SSLContext) -> None:
        trusting = ssl.create_default_context(cafile=str(CERTIFICATE))
        async with (
            Peer(tls=server) as peer,
            ferrymq.connect(peer.url, ssl=trusting) as connection,
        ):
            sender = await connection.sender("orders")
            await sender.send(Message(b"x" * 300_000))
            assert len(peer.received["orders"][0].body) == 300_000

    async def test_an_unknown_authority_is_refused(self, server: ssl.SSLContext) -> None:
        async with Peer(tls=server) as peer:
            said = "the certificate of the peer is not good: self-signed certificate; its authority"
            with pytest.raises(ferrymq.TransportError, match=said):
                await ferrymq.connect(peer.url)

    async def test_the_host_name_is_checked(self, server: ssl.SSLContext) -> None:
        trusting = ssl.create_default_context(cafile=str(CERTIFICATE))
        async with Peer(tls=server) as peer:
            with pytest.raises(ferrymq.TransportError, match=r"127\.0\.0\.1"):
                await ferrymq.connect(f"amqps://127.0.0.1:{peer.port}", ssl=trusting)

    async def test_a_server_without_tls_is_refused(self, peer: Peer) -> None:
        with pytest.raises(ferrymq.AmqpError):
            await ferrymq.connect(f"amqps://localhost:{peer.port}", timeout=5)

    @pytest.mark.spec("5.2")
    @pytest.mark.parametrize("user", ["", "ann:secret@"])
    async def test_messages_over_tls_inside_amqp(self, server: ssl.SSLContext, user: str) -> None:
        trusting = ssl.create_default_context(cafile=str(CERTIFICATE))
        async with upgrading(server) as peer:
            url = peer.url.replace("localhost", f"{user}localhost")
            async with ferrymq.connect(url, ssl=trusting, upgrade_tls=True) as connection:
                sender = await connection.sender("orders")
                await sender.send(Message(b"x" * 300_000))
                assert len(peer.received["orders"][0].body) == 300_000
        assert peer.count(events.TlsAgreed) == 1

    @pytest.mark.spec("5.2")
    async def test_an_unknown_authority_is_refused_inside_amqp(
        self, server: ssl.SSLContext
    ) -> None:
        async with upgrading(server) as peer:
            with pytest.raises(ferrymq.TransportError) as caught:
                await ferrymq.connect(peer.url, upgrade_tls=True)
            assert "the certificate of the peer is not good" in str(caught.value)
            assert "certificate verify failed" in str(caught.value.__cause__)
            assert peer.count(events.AuthenticationRequested) == 0

    @pytest.mark.spec("5.2")
    async def test_the_host_name_is_checked_inside_amqp(self, server: ssl.SSLContext) -> None:
        trusting = ssl.create_default_context(cafile=str(CERTIFICATE))
        async with upgrading(server) as peer:
            with pytest.raises(ferrymq.TransportError) as caught:
                url = f"amqp://127.0.0.1:{peer.port}"
                await ferrymq.connect(url, ssl=trusting, upgrade_tls=True)
            assert "127.0.0.1" in str(caught.value.__cause__)

    @pytest.mark.spec("5.3.3.2")
    @pytest.mark.parametrize("inside", [True, False])
    async def test_the_hostname_of_the_init_is_that_of_tls(
        self, server: ssl.SSLContext, inside: bool
    ) -> None:
        trusting = ssl.create_default_context(cafile=str(CERTIFICATE))
        serving = upgrading(server) if inside else Peer(tls=server)
        async with serving as peer:
            scheme = "amqp" if inside else "amqps"
            async with ferrymq.connect(
                f"{scheme}://localhost:{peer.port}",
                ssl=trusting,
                upgrade_tls=inside,
                hostname="vhost:tenant",
            ):
                asked = await peer.seen(events.AuthenticationRequested)
                assert asked.hostname == "localhost"

    async def test_a_server_that_does_not_upgrade_is_refused(self, peer: Peer) -> None:
        with pytest.raises(ferrymq.TransportError, match="no TLS inside AMQP"):
            await ferrymq.connect(peer.url, upgrade_tls=True)

    async def test_a_server_that_speaks_before_tls_is_refused(self) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readexactly(8) + b"AMQP\x00\x01\x00\x00")
            await reader.read()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(ferrymq.TransportError) as caught:
                await ferrymq.connect(f"amqp://127.0.0.1:{port}", upgrade_tls=True)
            assert "before the TLS handshake" in str(caught.value.__cause__)

    async def test_giving_up_during_the_handshake(self) -> None:
        ended = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readexactly(8))
            await reader.read()
            writer.close()
            ended.set_result(None)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(TimeoutError):
                await ferrymq.connect(f"amqp://127.0.0.1:{port}", upgrade_tls=True, timeout=0.1)
            await ended

    def test_an_upgrade_of_tls_is_a_mistake(self) -> None:
        with pytest.raises(ValueError, match="from the start"):
            ferrymq.connect("amqps://localhost", upgrade_tls=True)

    def test_a_context_without_amqps_is_a_mistake(self) -> None:
        with pytest.raises(ValueError, match="amqps://"):
            ferrymq.connect("amqp://localhost", ssl=ssl.create_default_context())


class TestLogging:
    async def test_frames_are_traced_without_secrets(
        self, peer: Peer, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG, "ferrymq")
        url = peer.url.replace("localhost", "me:hunter2@localhost")
        async with ferrymq.connect(url) as connection:
            sender = await connection.sender("orders")
            await sender.send(Message(b"confidential" * 10_000))
            async with connection.receiver("orders"):
                pass
        text = caplog.text
        for frame in ("sasl-init", "sasl-outcome"):
            assert f"{frame}(" in text
        for frame in ("open", "begin", "attach", "transfer", "close"):
            assert f"{frame}(" in text
        assert "-> header SASL 1.0.0" in text
        assert "<- header AMQP 1.0.0" in text
        assert "hunter2" not in text
        assert "confidential" not in text

    async def test_nothing_is_traced_unless_asked_for(
        self, peer: Peer, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "ferrymq")
        async with ferrymq.connect(peer.url):
            pass
        assert caplog.text == ""

    def test_a_password_in_the_clear_is_worth_a_warning(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        from ferrymq.aio.handshake import mechanisms
        from ferrymq.options import ConnectionOptions
        from ferrymq.url import parse_url

        for host, warned in (("broker.example", True), ("127.0.0.1", False), ("[::1]", False)):
            caplog.clear()
            mechanisms(parse_url(f"amqp://me:secret@{host}"), ConnectionOptions())
            assert ("unencrypted" in caplog.text) == warned
            assert "secret" not in caplog.text
