"""The server's side of SASL ANONYMOUS and PLAIN (AMQP 1.0 §5.3)."""

from __future__ import annotations

import pytest

from ferrymq.engine.events import Authenticated, AuthenticationRequested, HeaderReceived, Terminated
from ferrymq.errors import AuthenticationError, LocalProtocolError, TransportError
from ferrymq_types.security import (
    SaslChallenge,
    SaslCode,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from ferrymq_types.transport import Open
from tests.support.script import AMQP_HEADER, SASL_HEADER, encoded, frame, like

PLAIN = SaslInit(mechanism="PLAIN", initial_response=b"\0ann\0secret", hostname="host")


@pytest.fixture
def server(script):
    play = script(sasl_mechanisms=["ANONYMOUS", "PLAIN"], sasl_required=True)
    play >> SASL_HEADER << SASL_HEADER << SaslMechanisms
    play.event(HeaderReceived)
    return play


def refused(play, code: SaslCode) -> None:
    play << like(SaslOutcome, code=code)
    error = play.find(Terminated).error
    assert isinstance(error, AuthenticationError)
    assert error.code == code.value
    assert play.engine.finished


@pytest.mark.spec("5.3.2")
def test_anonymous(server):
    server >> SaslInit(mechanism="ANONYMOUS", initial_response=b"trace")
    asked = server.event(AuthenticationRequested)
    assert (asked.mechanism, asked.username, asked.password) == ("ANONYMOUS", None, None)
    server.quiet()
    server.engine.accept_authentication()
    server << SaslOutcome(code=SaslCode.OK)
    done = server.event(Authenticated)
    assert (done.mechanism, done.username) == ("ANONYMOUS", None)
    server >> AMQP_HEADER << AMQP_HEADER


def test_anonymous_without_an_initial_response(server):
    server >> SaslInit(mechanism="ANONYMOUS")
    assert server.event(AuthenticationRequested).username is None


@pytest.mark.spec("5.3.2")
def test_plain(server):
    server >> PLAIN
    asked = server.event(AuthenticationRequested)
    assert (asked.username, asked.password, asked.hostname) == ("ann", "secret", "host")
    assert "secret" not in repr(asked)
    server.engine.accept_authentication()
    server << SaslOutcome(code=SaslCode.OK)
    assert server.event(Authenticated).username == "ann"


@pytest.mark.spec("5.3.3.5")
def test_bad_credentials(server):
    server >> PLAIN
    server.event(AuthenticationRequested)
    server.engine.reject_authentication()
    refused(server, SaslCode.AUTH)


@pytest.mark.spec("5.3.3.6")
def test_refusal_with_another_code(server):
    server >> PLAIN
    server.engine.reject_authentication(SaslCode.SYS_TEMP)
    refused(server, SaslCode.SYS_TEMP)


@pytest.mark.parametrize(
    "response",
    [b"", b"ann\0secret", b"\0ann\0secret\0more", b"\0\0secret", b"\0\xff\0secret",
     b"other\0ann\0secret"],
)  # fmt: skip
def test_malformed_plain(server, response):
    server >> SaslInit(mechanism="PLAIN", initial_response=response)
    refused(server, SaslCode.SYS_PERM)


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER", "SCRAM-SHA-256"])
def test_an_init_without_a_response_is_asked_for_one(script, mechanism):
    server = script(sasl_mechanisms=[mechanism], sasl_required=True)
    server >> SASL_HEADER << SASL_HEADER << SaslMechanisms(sasl_server_mechanisms=[mechanism])
    server >> SaslInit(mechanism=mechanism) << SaslChallenge(challenge=b"")
    server >> SaslResponse(response=b"")
    refused(server, SaslCode.SYS_PERM)


def test_plain_may_name_itself_as_the_identity_to_act_for(server):
    server >> SaslInit(mechanism="PLAIN", initial_response=b"ann\0ann\0secret")
    assert server.event(AuthenticationRequested).username == "ann"


@pytest.mark.spec("5.3.3.2")
def test_mechanism_that_was_not_offered(server):
    server >> SaslInit(mechanism="SCRAM-SHA-256", initial_response=b"n,,")
    refused(server, SaslCode.AUTH)


def test_amqp_frame_in_the_sasl_layer(server):
    server >> Open(container_id="peer")
    refused(server, SaslCode.SYS_PERM)


@pytest.mark.spec("5.3.2")
def test_frame_that_only_a_server_sends(server):
    server >> SaslOutcome(code=SaslCode.OK)
    refused(server, SaslCode.SYS_PERM)


def test_response_without_a_challenge(server):
    server >> SaslResponse(response=b"")
    refused(server, SaslCode.SYS_PERM)


def test_junk_after_the_body(server):
    init = encoded(PLAIN)[8:]
    server >> frame(init + b"\0", type=1)
    refused(server, SaslCode.SYS_PERM)


def test_frame_without_a_body(server):
    server >> frame(b"", type=1)
    refused(server, SaslCode.SYS_PERM)


def test_frame_larger_than_the_handshake_allows(server):
    server >> frame(b"\0" * 16, type=1, size=8193)
    refused(server, SaslCode.SYS_PERM)


def test_second_init_is_no_header(server):
    server.send(PLAIN, PLAIN)
    server.engine.accept_authentication()
    server << SaslOutcome(code=SaslCode.OK)
    # The layer is over with the outcome: what follows has to be a header.
    server << AMQP_HEADER
    assert isinstance(server.find(Terminated).error, TransportError)


@pytest.mark.spec("5.3.1")
def test_no_second_sasl_layer(server):
    server >> PLAIN
    server.engine.accept_authentication()
    server << SaslOutcome
    server >> SASL_HEADER << AMQP_HEADER
    assert isinstance(server.find(Terminated).error, TransportError)


@pytest.mark.parametrize("cut", range(1, 20))
def test_input_pipelined_on_the_init_waits_for_the_verdict(server, cut):
    early = encoded(PLAIN) + AMQP_HEADER + encoded(Open(container_id="peer"))
    # The init in two pieces, what follows it in two more, then silence.
    init = len(encoded(PLAIN))
    server >> early[:10] >> early[10 : init + cut] >> early[init + cut :]
    server.event(AuthenticationRequested)
    server.quiet()
    assert server.events() == []
    server.engine.accept_authentication()
    server << SaslOutcome << AMQP_HEADER
    assert server.names() == ["Authenticated", "HeaderReceived", "OpenReceived"]


@pytest.mark.parametrize("cut", range(1, 8))
def test_header_in_pieces_before_the_verdict_is_not_forgotten(server, cut):
    init = encoded(PLAIN)
    server >> init[:10] >> init[10:] + AMQP_HEADER[:cut] >> AMQP_HEADER[cut:]
    server.engine.accept_authentication()
    server << SaslOutcome << AMQP_HEADER


def test_too_much_input_before_the_verdict(server):
    server >> PLAIN
    server.event(AuthenticationRequested)
    server >> b"x" * 65536
    assert server.events() == []
    server >> b"x"
    # It has not opened yet: the outcome is all that can be said.
    server << SaslOutcome(code=SaslCode.SYS_PERM)
    assert isinstance(server.event(Terminated).error, AuthenticationError)


def test_too_much_input_in_one_flight_with_the_init(server):
    server >> encoded(PLAIN) + b"x" * 65537
    server << SaslOutcome(code=SaslCode.SYS_PERM)
    server.event(AuthenticationRequested)
    assert isinstance(server.find(Terminated).error, AuthenticationError)


def test_too_much_input_in_pieces_before_the_verdict(server):
    server >> encoded(PLAIN) + b"x"
    for _ in range(64):
        server >> b"x" * 1024
    server << SaslOutcome(code=SaslCode.SYS_PERM)
    assert isinstance(server.find(Terminated).error, AuthenticationError)


@pytest.mark.parametrize("verdict", ["accept_authentication", "reject_authentication"])
def test_verdict_without_a_question(server, verdict):
    with pytest.raises(LocalProtocolError):
        getattr(server.engine, verdict)()
    server.quiet()
    assert not server.engine.finished


@pytest.mark.parametrize("verdict", ["accept_authentication", "reject_authentication"])
def test_verdict_after_the_transport_has_ended_changes_nothing(server, verdict):
    server >> PLAIN
    server.eof()
    server.find(Terminated)
    getattr(server.engine, verdict)()
    assert server.engine.finished
    assert server.events() == []


@pytest.mark.parametrize("size", range(1, 30))
def test_the_transport_ends_in_the_middle(server, size):
    server >> encoded(PLAIN)[:size]
    server.eof()
    assert server.names() == ["Terminated"]


# -- EXTERNAL (RFC 4422, Appendix A) -----------------------------------------------------------


@pytest.mark.parametrize(
    ("response", "identity"), [(None, None), (b"", None), (b"ann", "ann"), ("é".encode(), "é")]
)
def test_external(script, response, identity):
    play = script(sasl_mechanisms=["EXTERNAL"])
    play >> SASL_HEADER
    play.take()
    play >> SaslInit(mechanism="EXTERNAL", initial_response=response)
    # Whether the certificate may act as this identity is for the user to say.
    asked = play.find(AuthenticationRequested)
    assert (asked.mechanism, asked.username, asked.password) == ("EXTERNAL", identity, None)
    play.engine.accept_authentication()
    play << SaslOutcome(code=SaslCode.OK)
    assert play.event(Authenticated).username == identity


def test_external_that_is_not_utf_8(script):
    play = script(sasl_mechanisms=["EXTERNAL"])
    play >> SASL_HEADER
    play.take()
    play >> SaslInit(mechanism="EXTERNAL", initial_response=b"\xff")
    refused(play, SaslCode.SYS_PERM)


# -- frames ------------------------------------------------------------------------------------


@pytest.mark.spec("5.3.1")
def test_what_a_sasl_frame_ignores(server):
    init = encoded(PLAIN)[8:]
    server >> frame(b"\xff" * 8 + init, type=1, doff=4, channel=0xABCD)
    assert server.event(AuthenticationRequested).username == "ann"


@pytest.mark.spec("5.3.1")
def test_token_in_place_of_a_password(server):
    # More than 512 bytes: servers and clients of today exchange such things, and so do we.
    token = b"t" * 2000
    server >> SaslInit(mechanism="PLAIN", initial_response=b"\0ann\0" + token)
    assert server.event(AuthenticationRequested).password == token.decode()


@pytest.mark.spec("5.3.1")
def test_frames_of_ours_have_a_bare_header(script):
    play = script(sasl_mechanisms=["PLAIN"])
    play.engine.receive_data(SASL_HEADER, play.now)
    output = play.engine.data_to_send()
    assert output[8 + 4 : 8 + 8] == b"\x02\x01\x00\x00"
