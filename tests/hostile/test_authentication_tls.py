"""TLS: what comes in the clear is not believed, and handshakes without end stop nobody."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from ferrymq_broker.config import Config
from ferrymq_broker.config.security import Security
from ferrymq_broker.connections.authentication import ClientTransport
from ferrymq_broker.server import BrokerServer
from tests.broker.security.logins import until
from tests.broker.tls.pki import Pki
from tests.hostile.crowd import connect, sockets
from tests.hostile.logins import plain
from tests.hostile.site import Site
from tests.raw.client import PATIENCE, Client
from tests.raw.frames import AMQP_HEADER, SASL_HEADER, TLS_HEADER, open_frame, sasl_init
from tests.raw.process import MIB, Broker

PASSWORD = "correct horse"
LOGIN = SASL_HEADER + sasl_init("PLAIN", plain("alice", PASSWORD)) + AMQP_HEADER + open_frame()


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Certificates."""
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def config(pki: Pki) -> str:
    """In the clear for the witness; with TLS; with TLS inside AMQP."""
    return f"""
[limits]
handshake-timeout = 60
[security]
anonymous = true
users = {{ alice = "{PASSWORD}" }}
[tls]
certificate = "{pki.path("server")}"
key = "{pki.path("server-key")}"
[[listener]]
url = "amqp://127.0.0.1:0"
[[listener]]
url = "amqps://127.0.0.1:0"
[[listener]]
url = "amqp://127.0.0.1:0"
upgrade-tls = "required"
"""


@pytest.fixture
def secure(broker: Broker) -> int:
    """The port for TLS."""
    return broker.ports[1]


@pytest.fixture
def upgrading(broker: Broker) -> int:
    """The port where TLS is asked for."""
    return broker.ports[2]


class Secured:
    """The client's side of TLS over a socket, for as long as anybody likes."""

    def __init__(self, pki: Pki) -> None:
        context = ssl.create_default_context(cafile=str(pki.path("ca")))
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname="localhost")

    def hello(self) -> bytes:
        """What comes first."""
        with pytest.raises(ssl.SSLWantReadError):
            self._tls.do_handshake()
        return self._out.read()


async def test_passwords_in_the_clear_from_other_machines() -> None:
    """They are not asked for, and not looked at; with TLS they are."""
    security = Security.model_validate({"users": {"alice": PASSWORD}})
    async with BrokerServer(Config(security=security)) as server:
        for encrypted, offered in ((False, False), (True, True)):
            said = bytearray()
            far = ClientTransport("far", "192.0.2.7", loopback=False, encrypted=encrypted)
            handler = server.new_handler(far, said.extend, lambda: None)
            handler.receive_data(LOGIN[: -len(AMQP_HEADER + open_frame())], server.clock.now())
            assert (b"PLAIN" in said) is offered
            assert b"SCRAM-SHA-256" in said
            await asyncio.wait_for(until(lambda at=handler: at.login.pending is None), PATIENCE)  # type: ignore[misc]
            # The outcome for a mechanism that was not offered.
            assert (b"\x50\x01" in bytes(said).partition(b"\x53\x44")[2]) is not offered
            assert (handler.client.user == "alice") is offered
            handler.receive_eof(server.clock.now())


@pytest.mark.parametrize("said", [LOGIN, AMQP_HEADER + open_frame(), b"GET / HTTP/1.1\r\n\r\n"])
def test_nothing_in_the_clear_where_tls_is_required(
    site: Site, upgrading: int, said: bytes
) -> None:
    with Client(upgrading) as client:
        client.send(said)
        assert client.take(8) == TLS_HEADER
        assert client.take(1) == b""


def test_nothing_in_the_clear_behind_the_header(site: Site, upgrading: int) -> None:
    """Who puts a login between the header and the handshake of somebody else is not him."""
    with Client(upgrading) as client:
        client.send(TLS_HEADER, LOGIN)
        assert client.take(8) == TLS_HEADER
        said = b""
        while piece := client.take(4096):
            said += piece
        # An alert, and nothing of AMQP.
        assert b"AMQP" not in said and said[:1] in (b"\x15", b"")


def test_nothing_in_the_clear_on_the_secure_port(site: Site, secure: int) -> None:
    for said in (LOGIN, TLS_HEADER, b"\x16\x03\x01\xff\xff" + bytes(100_000), b"\x80" * 5000):
        with Client(secure) as client:
            client.send(said).half_close()
            answer = b""
            while piece := client.take(4096):
                answer += piece
            assert b"AMQP" not in answer


def test_the_upgrade_is_made_once(site: Site, upgrading: int, pki: Pki) -> None:
    context = pki.trusting()
    with socket.create_connection(("127.0.0.1", upgrading), PATIENCE) as plain_socket:
        plain_socket.sendall(TLS_HEADER)
        assert plain_socket.recv(8) == TLS_HEADER
        with context.wrap_socket(plain_socket, server_hostname="localhost") as encrypted:
            encrypted.sendall(TLS_HEADER)
            assert encrypted.recv(8) == AMQP_HEADER
            assert encrypted.recv(1) == b""


def test_a_flood_of_handshakes(site: Site, secure: int, pki: Pki) -> None:
    """Begun by the hundred at once, and left alone when the broker has done its part."""
    hello = Secured(pki).hello()

    def attack() -> None:
        with sockets() as crowd:
            crowd.extend(connect(secure) for _ in range(150))
            for one in crowd:
                one.sendall(hello)
            for one in crowd:
                assert one.recv(1) == b"\x16"

    site.broker.forget_peak()
    before = site.broker.memory()
    site.endures(attack, 64 * MIB)
    # All of them together, not all there ever were.
    assert site.broker.peak() - before < 160 * MIB


def test_a_flood_of_upgrades_and_rubbish(site: Site, upgrading: int) -> None:
    def attack() -> None:
        for said in (TLS_HEADER, TLS_HEADER + bytes(1000), TLS_HEADER + b"\x16\x03\x01\x40\x00"):
            with sockets() as crowd:
                crowd.extend(connect(upgrading) for _ in range(30))
                for one in crowd:
                    one.sendall(said)
                for one in crowd:
                    assert one.recv(8) == TLS_HEADER

    site.endures(attack, 64 * MIB)


class KeyUpdates:
    """Asks for new keys in TLS 1.3 (RFC 8446 §4.6.3), in records made by hand from the secret of a
    connection that a library has made."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def _expand(self, label: bytes, size: int) -> bytes:
        info = struct.pack(">HB", size, 6 + len(label)) + b"tls13 " + label + b"\0"
        return HKDFExpand(SHA384(), size, info).derive(self._secret)

    def record(self) -> bytes:
        """The next one: the first with these keys, and the last."""
        aad = b"\x17\x03\x03" + struct.pack(">H", 5 + 1 + 16)
        # A key update that asks for one; it is a handshake.
        content = b"\x18\0\0\1\1" + b"\x16"
        sealed = AESGCM(self._expand(b"key", 32)).encrypt(self._expand(b"iv", 12), content, aad)
        self._secret = self._expand(b"traffic upd", 48)
        return aad + sealed


def test_new_keys_again_and_again(site: Site, secure: int, pki: Pki, tmp_path: Path) -> None:
    """Each is answered; a client that reads none of the answers does not have them kept for it."""
    context = pki.trusting()
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.keylog_filename = str(tmp_path / "keys.txt")
    with socket.create_connection(("127.0.0.1", secure), PATIENCE) as raw:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                raw.sendall(outgoing.read())
                incoming.write(raw.recv(65536))
        raw.sendall(outgoing.read())
        cipher = tls.cipher()
        assert cipher is not None and cipher[0] == "TLS_AES_256_GCM_SHA384"
        lines = (tmp_path / "keys.txt").read_text().splitlines()
        (secret,) = [line for line in lines if line.startswith("CLIENT_TRAFFIC_SECRET_0 ")]
        updates = KeyUpdates(bytes.fromhex(secret.split()[2]))
        before = site.broker.memory()
        with contextlib.suppress(ConnectionError):
            for _ in range(400):
                raw.sendall(b"".join(updates.record() for _ in range(50)))
            # It ends long before the time for a login does; otherwise this has its own.
            while raw.recv(65536):
                pass
    site.broker.memory_is_back(before)


@pytest.fixture
def stranger(tmp_path: Path, pki: Pki) -> Iterator[tuple[Pki, Broker]]:
    """A broker that knows clients by their certificates."""
    config = f"""
[security]
certificate-rule = [{{ name-from = "subject-cn" }}]
[tls]
certificate = "{pki.path("server")}"
key = "{pki.path("server-key")}"
client-certificates = "optional"
client-ca = "{pki.path("ca")}"
[[listener]]
url = "amqps://127.0.0.1:0"
"""
    with Broker(config) as broker:
        yield pki, broker


def test_certificates_say_who_somebody_is_and_nobody_else_does(
    stranger: tuple[Pki, Broker],
) -> None:
    pki, broker = stranger
    pki.write("wildcard", pki.authority.client("*", 1))
    cases = (
        # No certificate, no mechanism; no way past that without SASL.
        (None, SASL_HEADER, b"", False),
        (None, AMQP_HEADER, open_frame(), False),
        ("alice", AMQP_HEADER, open_frame(), False),
        ("alice", SASL_HEADER, sasl_init("EXTERNAL", b"bob"), False),
        ("alice", SASL_HEADER, sasl_init("EXTERNAL", b"alice\0"), False),
        ("alice", SASL_HEADER, sasl_init("PLAIN", plain("alice", "")), False),
        ("alice", SASL_HEADER, sasl_init("ANONYMOUS"), False),
        ("wildcard", SASL_HEADER, sasl_init("EXTERNAL", b"alice"), False),
        ("alice", SASL_HEADER, sasl_init("EXTERNAL", b"alice"), True),
        ("alice", SASL_HEADER, sasl_init("EXTERNAL"), True),
    )
    for certificate, header, frame, good in cases:
        with (
            socket.create_connection(("127.0.0.1", broker.port), PATIENCE) as raw,
            pki.trusting(certificate).wrap_socket(raw, server_hostname="localhost") as client,
        ):
            client.sendall(header + frame)
            heard = b""
            while not heard.endswith(b"\x53\x44\xc0\x03\x01\x50\x00") and b"\x53\x44" not in heard:
                piece = client.recv(4096)
                if not piece:
                    break
                heard += piece
            assert (b"\x50\x00" in heard.partition(b"\x53\x44")[2][:8]) is good, (
                certificate,
                heard,
            )
