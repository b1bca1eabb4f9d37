"""SASL OAUTHBEARER on both sides (AMQP 1.0 §5.3; RFC 7628)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq.engine import OAuthBearer
from ferrymq.engine.events import (
    Authenticated,
    AuthenticationRequested,
    HeaderReceived,
    Terminated,
)
from ferrymq.engine.oauth import OAuthBearerServer
from ferrymq.errors import AuthenticationError, RemoteProtocolError, TransportError
from ferrymq_types.security import (
    SaslChallenge,
    SaslCode,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from tests.support.script import AMQP_HEADER, SASL_HEADER, like

NAME = "OAUTHBEARER"
TOKEN = "eyJhbGciOiJub25lIn0.e30.c2ln"
INIT = SaslInit(mechanism=NAME, initial_response=OAuthBearer(TOKEN, "user").initial_response())


@pytest.fixture
def server(script):
    play = script(sasl_mechanisms=[NAME], sasl_required=True)
    play >> SASL_HEADER << SASL_HEADER << SaslMechanisms
    play.event(HeaderReceived)
    return play


@pytest.fixture
def client(script):
    play = script(initiator=True, sasl=OAuthBearer(TOKEN), hostname="host")
    play << SASL_HEADER
    play >> SASL_HEADER
    play.events()
    play >> SaslMechanisms(sasl_server_mechanisms=[NAME])
    play << like(SaslInit, mechanism=NAME)
    return play


# -- the server -----------------------------------------------------------------------------


@pytest.mark.spec("5.3.2")
def test_a_token_is_asked_about_and_accepted(server):
    server >> INIT
    asked = server.event(AuthenticationRequested)
    assert (asked.mechanism, asked.username, asked.password) == (NAME, "user", None)
    assert asked.token == TOKEN
    assert TOKEN not in repr(asked)
    server.engine.accept_authentication()
    server << like(SaslOutcome, code=SaslCode.OK)
    assert server.event(Authenticated).username == "user"
    server >> AMQP_HEADER << AMQP_HEADER


@pytest.mark.spec("5.3.3.6")
@pytest.mark.parametrize("answer", [b"\x01", b"", b"anything"])
def test_a_refused_token_is_told_why_before_the_outcome(server, answer):
    server >> INIT
    server.event(AuthenticationRequested)
    server.engine.reject_authentication()
    server << SaslChallenge(challenge=b'{"status":"invalid_token"}')
    assert not server.engine.finished
    server >> SaslResponse(response=answer)
    server << SaslOutcome(code=SaslCode.AUTH)
    error = server.event(Terminated).error
    assert isinstance(error, AuthenticationError) and error.code == SaslCode.AUTH.value


def test_no_other_outcome_has_a_reason_before_it(server):
    server >> INIT
    server.event(AuthenticationRequested)
    server.engine.reject_authentication(SaslCode.SYS_TEMP)
    server << SaslOutcome(code=SaslCode.SYS_TEMP)
    server.event(Terminated)


def test_a_response_nobody_asked_for(server):
    server >> INIT
    server.event(AuthenticationRequested)
    server >> SaslResponse(response=b"\x01")
    server.quiet()
    server.engine.accept_authentication()
    server << like(SaslOutcome, code=SaslCode.OK) << AMQP_HEADER
    server.event(Authenticated)
    assert isinstance(server.event(Terminated).error, TransportError)


def test_a_client_that_has_no_token_is_told_so(server):
    server >> SaslInit(mechanism=NAME, initial_response=b"n,,\x01auth=\x01\x01")
    assert server.event(AuthenticationRequested).token is None
    server.engine.reject_authentication()
    server << like(SaslChallenge)
    server >> SaslResponse(response=b"\x01")
    server << like(SaslOutcome, code=SaslCode.AUTH)
    server.event(Terminated)


def read(response: bytes | None) -> OAuthBearerServer:
    mechanism = OAuthBearerServer(NAME)
    mechanism.start(response)
    return mechanism


def test_what_else_a_client_may_say():
    """The example of RFC 7628 §4.1, and what the grammar of §3.1 allows besides."""
    said = read(
        b"n,a=user@example.com,\x01host=server.example.com\x01port=143\x01"
        b"auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01\x01"
    )
    assert said.username == "user@example.com"
    assert said.token == "vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg=="
    assert read(b"y,,\x01auth=bearer abc\x01\x01").token == "abc"
    assert read(b"n,a=a=2Cb=3D,\x01auth=BEARER   abc\x01\x01").username == "a,b="
    assert read(b"n,,\x01\x01").token is None


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"n,,",
        b"n,\x01auth=Bearer a\x01\x01",
        b"n,,,\x01auth=Bearer a\x01\x01",
        b"x,,\x01auth=Bearer a\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer a\x01\x01",
        b"n,b=user,\x01auth=Bearer a\x01\x01",
        b"n,a=,\x01auth=Bearer a\x01\x01",
        b"n,a=\0,\x01auth=Bearer a\x01\x01",
        b"n,a=1=2,\x01auth=Bearer a\x01\x01",
        b"n,,\x01auth=Bearer a\x01",
        b"n,,\x01auth=Bearer a",
        b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
        b"n,,\x01auth=Basic a\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer a\x00\x01\x01",
        b"n,,\x01auth\x01\x01",
        b"n,,\x011=2\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
    ],
)
def test_malformed(response, server):
    server >> SaslInit(mechanism=NAME, initial_response=response)
    server << like(SaslOutcome, code=SaslCode.SYS_PERM)
    error = server.event(Terminated).error
    assert isinstance(error, AuthenticationError)
    assert "Bearer" not in str(error)


@given(st.binary(max_size=64))
def test_whatever_comes_is_read_or_refused(junk):
    for response in (junk, b"n,,\x01auth=Bearer " + junk + b"\x01\x01", b"n,a=" + junk + b",\x01"):
        try:
            token = read(response).token
        except RemoteProtocolError:
            continue
        assert token is None or token.encode() in response


@given(
    st.from_regex(r"[A-Za-z0-9\-._~+/]+=*", fullmatch=True),
    st.none() | st.text(st.characters(blacklist_characters="\0\x01", codec="utf-8"), min_size=1),
)
def test_the_server_reads_what_the_client_says(token, username):
    said = read(OAuthBearer(token, username).initial_response())
    assert (said.token, said.username) == (token, username)


@pytest.mark.spec("5.3.3")
def test_a_long_token_fits_into_the_first_frame(server):
    token = "x" * 7000
    server >> SaslInit(mechanism=NAME, initial_response=OAuthBearer(token).initial_response())
    assert server.event(AuthenticationRequested).token == token
    server.engine.accept_authentication()
    server << like(SaslOutcome, code=SaslCode.OK)
    server.event(Authenticated)


# -- the client -----------------------------------------------------------------------------


def test_the_client_gets_in(client):
    client >> SaslOutcome(code=SaslCode.OK)
    client << AMQP_HEADER
    assert client.find(Authenticated).username is None


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        (b'{"status":"invalid_token","scope":"queue"}', " (invalid_token)"),
        (b'{"status":"insufficient_scope"}', " (insufficient_scope)"),
        (b'{"status":"two words\\n"}', ""),
        (b'{"status":7}', ""),
        (b"[" * 8000, ""),
        (b"\xff", ""),
        (b"", ""),
    ],
)
def test_the_client_hears_why_it_is_refused(client, challenge, reason):
    client >> SaslChallenge(challenge=challenge)
    client << SaslResponse(response=b"\x01")
    client >> SaslOutcome(code=SaslCode.AUTH)
    error = client.find(Terminated).error
    assert isinstance(error, AuthenticationError)
    said = f"the server refused SASL OAUTHBEARER: the credentials are wrong{reason}"
    assert str(error) == said
    assert error.code == SaslCode.AUTH.value


@pytest.mark.parametrize("token", ["", "two words", "line\n", "nul\0", "é", "=a", "a\x01auth=b"])
def test_what_is_no_token(token):
    with pytest.raises(ValueError, match="bearer token") as raised:
        OAuthBearer(token)
    assert not token or token not in str(raised.value)


def test_user_names_that_would_end_the_pair():
    for name in ("a\x01b", "a\0b"):
        with pytest.raises(ValueError, match="NUL or SOH"):
            OAuthBearer("token", name)


def test_the_token_is_not_shown():
    assert "token-of-mine" not in repr(OAuthBearer("token-of-mine"))
