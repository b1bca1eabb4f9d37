"""The client's side of SASL ANONYMOUS and PLAIN (AMQP 1.0 §5.3)."""

from __future__ import annotations

import pytest

from ferrymq.engine import Anonymous, External, Plain
from ferrymq.engine.events import Authenticated, Terminated
from ferrymq.errors import AuthenticationError, RemoteProtocolError
from ferrymq_types.security import (
    SaslChallenge,
    SaslCode,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
)
from ferrymq_types.transport import Open
from tests.support.script import AMQP_HEADER, SASL_HEADER, like

OFFER = SaslMechanisms(sasl_server_mechanisms=["PLAIN", "ANONYMOUS"])
OK = SaslOutcome(code=SaslCode.OK)


@pytest.fixture
def client(script):
    play = script(initiator=True, sasl=Plain("ann", "secret"), hostname="host")
    play << SASL_HEADER
    play >> SASL_HEADER
    play.events()
    return play


@pytest.mark.spec("5.3.2")
def test_anonymous(script):
    play = script(initiator=True, sasl=Anonymous("me"))
    play << SASL_HEADER
    play >> SASL_HEADER >> OFFER
    play << SaslInit(mechanism="ANONYMOUS", initial_response=b"me")
    play >> OK << AMQP_HEADER
    assert play.find(Authenticated).username is None


@pytest.mark.spec("5.3.2")
def test_plain(client):
    client >> OFFER
    client << SaslInit(mechanism="PLAIN", initial_response=b"\0ann\0secret")
    client >> OK << AMQP_HEADER
    assert client.event(Authenticated).username == "ann"
    client.engine.open()
    client << Open
    client >> AMQP_HEADER


def test_open_asked_for_at_the_start_follows_the_layers(client):
    client.engine.open()
    client.quiet()
    client >> OFFER << SaslInit
    client >> OK << AMQP_HEADER
    client >> AMQP_HEADER << Open


@pytest.mark.parametrize("code", [c for c in SaslCode if c is not SaslCode.OK])
def test_refused(client, code):
    client >> OFFER << SaslInit
    client >> SaslOutcome(code=code)
    error = client.event(Terminated).error
    assert isinstance(error, AuthenticationError)
    assert error.code == code.value


def test_mechanism_is_not_offered(client):
    client >> SaslMechanisms(sasl_server_mechanisms=["ANONYMOUS"])
    error = client.event(Terminated).error
    assert isinstance(error, AuthenticationError)
    assert "ANONYMOUS" in str(error) and "PLAIN" in str(error)


def test_challenge_that_the_mechanism_does_not_know(client):
    client >> OFFER << SaslInit
    client >> SaslChallenge(challenge=b"?")
    assert isinstance(client.event(Terminated).error, AuthenticationError)


@pytest.mark.spec("5.3.2")
@pytest.mark.parametrize(
    "frames",
    [[OK], [SaslChallenge(challenge=b"")], [SaslInit(mechanism="PLAIN")],
     [Open(container_id="server")]],
    ids=["outcome", "challenge", "init", "open"],
)  # fmt: skip
def test_frame_out_of_place_ends_the_transport_without_a_word(client, frames):
    for item in frames:
        client >> item
    client.quiet()
    assert isinstance(client.event(Terminated).error, RemoteProtocolError)


def test_mechanisms_twice(client):
    client >> OFFER << SaslInit
    client >> OFFER
    client.quiet()
    assert isinstance(client.event(Terminated).error, RemoteProtocolError)


def test_the_transport_ends_before_the_outcome(client):
    client >> OFFER << SaslInit
    client.eof()
    error = client.event(Terminated).error
    assert isinstance(error, AuthenticationError)
    assert error.lost and error.code is None


@pytest.mark.parametrize(("user", "password"), [("a\0b", "c"), ("a", "b\0c")])
def test_plain_cannot_carry_a_nul(user, password):
    with pytest.raises(ValueError, match="NUL"):
        Plain(user, password)


@pytest.mark.parametrize(("username", "response"), [(None, b""), ("ann", b"ann")])
def test_external(script, username, response):
    play = script(initiator=True, sasl=External(username))
    play << SASL_HEADER
    play >> SASL_HEADER >> SaslMechanisms(sasl_server_mechanisms=["PLAIN", "EXTERNAL"])
    play << SaslInit(mechanism="EXTERNAL", initial_response=response)
    play >> OK << AMQP_HEADER
    assert play.find(Authenticated).mechanism == "EXTERNAL"


@pytest.mark.spec("5.3.3.2")
def test_first_of_ours_that_the_server_has(script):
    play = script(initiator=True, sasl=[External(), Plain("ann", "secret"), Anonymous()])
    play << SASL_HEADER
    # The order in which the server lists them does not matter.
    play >> SASL_HEADER >> SaslMechanisms(sasl_server_mechanisms=["ANONYMOUS", "X", "PLAIN"])
    play << SaslInit(mechanism="PLAIN", initial_response=b"\0ann\0secret")


@pytest.mark.spec("5.3.3.2")
def test_hostnames_of_the_init_and_of_the_open_are_two(client):
    client.engine.settings.sasl_hostname = "name.of.tls"
    client.engine.open()
    client >> OFFER << like(SaslInit, hostname="name.of.tls")
    client >> OK << AMQP_HEADER
    client >> AMQP_HEADER << like(Open, hostname="host")
