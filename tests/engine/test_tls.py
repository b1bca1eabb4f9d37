"""TLS inside AMQP, begun by a header with protocol id 2 (AMQP 1.0 §5.2), with a real TLS."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from ferrymq.engine import Connection, ConnectionSettings, External, Plain
from ferrymq.engine.events import (
    Authenticated,
    AuthenticationRequested,
    HeaderReceived,
    OpenReceived,
    Terminated,
    TlsAgreed,
)
from ferrymq.engine.states import ConnectionState
from ferrymq.errors import LocalProtocolError, TransportError
from ferrymq_types.security import SaslInit
from ferrymq_types.transport import Close, Open
from tests.support.script import AMQP_HEADER, SASL_HEADER, TLS_HEADER, encoded

# Signs itself, names localhost, and holds its key: made for tests and of no use elsewhere.
CERTIFICATE = Path(__file__).parents[1] / "client" / "tls" / "localhost.pem"

HELLO = b"\x16\x03\x01\x00\x05hello"


def context(server: bool) -> ssl.SSLContext:
    if server:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(CERTIFICATE)
    else:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        made.load_verify_locations(CERTIFICATE)
    return made


class End:
    """An engine, and from its `TlsAgreed` on a TLS between it and the wire."""

    def __init__(self, **settings: object) -> None:
        self.server = not settings["initiator"]
        self.engine = Connection(ConnectionSettings(**settings), 0.0)
        self.events: list[object] = []
        self.clear = b""
        self._tls: ssl.SSLObject | None = None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._shaken = False

    def receive(self, data: bytes) -> None:
        if self._tls is None:
            self.engine.receive_data(data, 0.0)
        else:
            self._incoming.write(data)
            self._turn()
        self._answer()

    def _answer(self) -> None:
        for event in self.engine.take_events():
            self.events.append(event)
            if isinstance(event, TlsAgreed):
                self._incoming.write(self.engine.take_tls_data())
                self._tls = context(self.server).wrap_bio(
                    self._incoming,
                    self._outgoing,
                    server_side=self.server,
                    server_hostname=None if self.server else "localhost",
                )
            elif isinstance(event, AuthenticationRequested):
                self.engine.accept_authentication()
                self._answer()
            elif isinstance(event, OpenReceived) and self.server:
                self.engine.open()

    def _turn(self) -> None:
        """Go on with TLS: its handshake, then what it decrypts."""
        assert self._tls is not None
        try:
            if not self._shaken:
                self._tls.do_handshake()
                self._shaken = True
                self.engine.tls_established(0.0)
                self._answer()
            while True:
                self.engine.receive_data(self._tls.read(65536), 0.0)
                self._answer()
        except ssl.SSLWantReadError:
            pass

    def send(self) -> bytes:
        """What is to go over the wire."""
        data = b""
        if not self._shaken:
            # The header, still in the clear: nothing of AMQP follows it.
            data = self.engine.data_to_send()
            self.clear += data
            if self._tls is not None:
                self._turn()
        if self._shaken:
            assert self._tls is not None
            plain = self.engine.data_to_send()
            if plain:
                self._tls.write(plain)
        return data + self._outgoing.read()

    def find(self, kind: type) -> object:
        return next(event for event in self.events if isinstance(event, kind))


def connect(client: End, server: End, piece: int = 1 << 20) -> None:
    """Carry bytes both ways, `piece` at a time, until nothing more is said."""
    client.engine.open()
    quiet = 0
    while quiet < 2:
        for a, b in ((client, server), (server, client)):
            data = a.send()
            quiet = 0 if data else quiet + 1
            for start in range(0, len(data), piece):
                b.receive(data[start : start + piece])


@pytest.mark.spec("5.2")
@pytest.mark.parametrize("piece", [1 << 20, 1, 7])
@pytest.mark.parametrize("sasl", [False, True])
def test_the_layers_inside_tls(sasl, piece):
    client = End(
        container_id="c", initiator=True, tls=True, sasl=Plain("ann", "secret") if sasl else None
    )
    server = End(
        container_id="s",
        initiator=False,
        tls=True,
        tls_required=True,
        sasl_mechanisms=["PLAIN"],
        sasl_required=sasl,
    )
    connect(client, server, piece)
    assert client.engine.opened and server.engine.opened
    layers = [2, 3, 0] if sasl else [2, 0]
    for end in (client, server):
        headers = [e.protocol_id for e in end.events if isinstance(e, HeaderReceived)]
        assert headers == layers
        # In the clear there was the header of TLS and nothing else.
        assert end.clear == TLS_HEADER
    if sasl:
        assert server.find(AuthenticationRequested).password == "secret"
        assert client.find(Authenticated).username == "ann"
    assert server.find(OpenReceived).open.container_id == "c"


@pytest.mark.spec("5.2")
def test_the_end_that_connected_is_the_tls_client(script):
    # Each end is told to start, and its own setting says in which role.
    client = script(initiator=True, tls=True)
    client << TLS_HEADER
    client >> TLS_HEADER
    assert client.names() == ["HeaderReceived", "TlsAgreed"]
    assert client.engine.settings.initiator
    server = script(tls=True)
    server >> TLS_HEADER << TLS_HEADER
    assert server.names() == ["HeaderReceived", "TlsAgreed"]


@pytest.mark.spec("5.2")
def test_sasl_external_inside_tls(script):
    server = script(tls=True, sasl_mechanisms=["EXTERNAL"], sasl_required=True)
    server >> TLS_HEADER << TLS_HEADER
    server.engine.tls_established(server.now)
    client = script(initiator=True, tls=True, sasl=External())
    client << TLS_HEADER
    client >> TLS_HEADER
    client.engine.tls_established(client.now)
    client << SASL_HEADER
    server >> SASL_HEADER << SASL_HEADER
    server.take()


@pytest.mark.spec("5.2")
@pytest.mark.parametrize("cut", range(len(TLS_HEADER + HELLO) + 1))
def test_what_follows_the_header_belongs_to_tls(script, cut):
    play = script(tls=True)
    whole = TLS_HEADER + HELLO
    play >> whole[:cut] >> whole[cut:]
    play << TLS_HEADER
    play.find(TlsAgreed)
    assert play.engine.take_tls_data() == HELLO
    assert play.engine.take_tls_data() == b""
    play.engine.tls_established(play.now)
    play >> AMQP_HEADER << AMQP_HEADER


def test_bytes_from_before_tls_are_never_read_as_if_from_inside(script):
    # An attacker on the way adds a header and an open to the header of the client.
    play = script(tls=True)
    play >> TLS_HEADER + AMQP_HEADER + encoded(Open(container_id="mallory"))
    play << TLS_HEADER
    with pytest.raises(LocalProtocolError, match="has not been taken"):
        play.engine.tls_established(play.now)
    play.quiet()
    assert play.names() == ["HeaderReceived", "TlsAgreed"]


def test_nothing_is_said_or_read_during_the_handshake(script):
    play = script(initiator=True, tls=True)
    play.engine.open()
    play << TLS_HEADER
    play >> TLS_HEADER
    play >> AMQP_HEADER
    play.quiet()
    assert play.names() == ["HeaderReceived", "TlsAgreed"]
    assert play.engine.take_tls_data() == AMQP_HEADER
    play.engine.tls_established(play.now)
    play << AMQP_HEADER
    play >> AMQP_HEADER << Open


def refused(play) -> None:
    assert isinstance(play.find(Terminated).error, TransportError)
    assert play.engine.state is ConnectionState.END


@pytest.mark.spec("5.2")
@pytest.mark.parametrize("header", [AMQP_HEADER, SASL_HEADER, b"AMQP\x02\x01\x00\x01"])
def test_server_that_requires_tls_takes_nothing_else(script, header):
    play = script(tls=True, tls_required=True, sasl_mechanisms=["PLAIN"])
    play >> header << TLS_HEADER
    refused(play)


@pytest.mark.spec("2.2")
@pytest.mark.parametrize("header", [AMQP_HEADER, SASL_HEADER])
def test_client_that_wants_tls_takes_nothing_else(script, header):
    play = script(initiator=True, tls=True, sasl=Plain("ann", "secret"))
    play << TLS_HEADER
    play >> header
    play.quiet()
    refused(play)


@pytest.mark.spec("2.2")
def test_server_without_tls_answers_with_what_it_speaks(script):
    play = script()
    play >> TLS_HEADER << AMQP_HEADER
    refused(play)


def test_server_that_offers_tls_takes_a_client_without(script):
    play = script(tls=True)
    play >> AMQP_HEADER << AMQP_HEADER
    assert play.names() == ["HeaderReceived"]


@pytest.mark.spec("5.1")
def test_tls_comes_once_and_first(script):
    play = script(tls=True)
    play >> TLS_HEADER << TLS_HEADER
    play.engine.tls_established(play.now)
    play >> TLS_HEADER << AMQP_HEADER
    refused(play)
    play = script(tls=True, sasl_mechanisms=["ANONYMOUS"])
    play >> SASL_HEADER << SASL_HEADER
    play.take()
    play >> SaslInit(mechanism="ANONYMOUS")
    play.engine.accept_authentication()
    play.take()
    play >> TLS_HEADER << AMQP_HEADER
    refused(play)


def test_transport_that_ends_during_the_handshake(script):
    play = script(initiator=True, tls=True)
    play << TLS_HEADER
    play >> TLS_HEADER
    play.eof()
    assert isinstance(play.find(Terminated).error, TransportError)
    assert play.engine.take_tls_data() == b""
    play.engine.tls_established(play.now)
    play.quiet()


def test_handshake_counts_to_the_time_there_is_for_connecting(script):
    play = script(tls=True, handshake_timeout=5.0)
    play >> TLS_HEADER << TLS_HEADER
    play.tick(5.0)
    assert isinstance(play.find(Terminated).error, TransportError)


def test_too_much_that_nobody_gives_to_tls(script):
    play = script(tls=True)
    play >> TLS_HEADER << TLS_HEADER
    play.events()
    play >> b"x" * 65536
    assert play.events() == []
    play >> b"x"
    refused(play)


def test_close_during_the_handshake_ends_the_transport(script):
    play = script(initiator=True, tls=True)
    play << TLS_HEADER
    play >> TLS_HEADER
    play.engine.close()
    play.quiet()
    assert play.find(Terminated).error is None


@pytest.mark.parametrize("call", ["take", "established"])
@pytest.mark.parametrize("stage", ["start", "amqp"])
def test_calls_about_tls_when_there_is_none(script, call, stage):
    play = script(tls=True)
    if stage == "amqp":
        play >> AMQP_HEADER << AMQP_HEADER
    with pytest.raises(LocalProtocolError):
        if call == "take":
            play.engine.take_tls_data()
        else:
            play.engine.tls_established(play.now)
    assert not play.engine.finished


# -- the end of a layer -----------------------------------------------------------------


@pytest.mark.spec("5.1")
@pytest.mark.parametrize(
    ("settings", "header"),
    [({}, TLS_HEADER), ({"tls": True, "tls_required": True}, AMQP_HEADER), ({}, b"GET / HT")],
)
def test_when_a_layer_ends_the_transport_is_to_be_read_to_its_end(script, settings, header):
    play = script(**settings)
    play >> header
    play.take()
    refused(play)
    assert play.engine.lingering
    # What the peer sent before it knew is of no consequence.
    play >> encoded(Open(container_id="peer"))
    play.quiet()
    play.eof()
    assert not play.engine.lingering and play.events() == []


def test_after_an_exchange_of_closes_there_is_nothing_to_read(script):
    play = script()
    play >> AMQP_HEADER << AMQP_HEADER
    play >> Open(container_id="peer")
    play.engine.open()
    play << Open
    play >> Close()
    play.engine.close()
    play << Close
    assert play.engine.finished and not play.engine.lingering
