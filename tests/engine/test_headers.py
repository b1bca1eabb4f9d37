"""Protocol header negotiation (AMQP 1.0 §2.2)."""

from __future__ import annotations

import pytest

from ferrymq.engine import Anonymous
from ferrymq.engine.events import HeaderReceived, Terminated
from ferrymq.errors import TransportError
from ferrymq_types.security import SaslMechanisms
from tests.support.script import AMQP_HEADER, SASL_HEADER, TLS_HEADER, like


def refused(play) -> None:
    error = play.find(Terminated).error
    assert isinstance(error, TransportError)
    assert play.engine.finished


@pytest.mark.spec("2.2")
def test_server_answers_the_amqp_header(script):
    play = script()
    play.quiet()
    play >> AMQP_HEADER << AMQP_HEADER
    assert play.event(HeaderReceived).protocol_id == 0


@pytest.mark.spec("2.2")
def test_client_speaks_first(script):
    play = script(initiator=True)
    play << AMQP_HEADER
    play >> AMQP_HEADER
    assert play.event(HeaderReceived).protocol_id == 0


@pytest.mark.spec("2.2")
def test_header_in_single_bytes(script):
    play = script()
    for i in range(8):
        play.quiet()
        play >> AMQP_HEADER[i : i + 1]
    play << AMQP_HEADER


@pytest.mark.spec("2.2")
@pytest.mark.parametrize(
    "header",
    [b"AMQP\x00\x00\x09\x01", b"AMQP\x00\x01\x00\x01", b"AMQP\x01\x01\x00\x00", TLS_HEADER,
     b"GET / HT", b"\x16\x03\x01\x02\x00\x01\x00\x01"],
)  # fmt: skip
def test_server_answers_a_header_it_cannot_speak_with_its_own_and_ends(script, header):
    play = script()
    play >> header << AMQP_HEADER
    refused(play)


@pytest.mark.spec("2.2")
def test_client_ends_when_the_server_answers_with_another_header(script):
    play = script(initiator=True)
    play << AMQP_HEADER
    play >> SASL_HEADER
    refused(play)


@pytest.mark.spec("5.3.1")
def test_server_that_requires_sasl_answers_with_the_sasl_header(script):
    play = script(sasl_mechanisms=["PLAIN"], sasl_required=True)
    play >> AMQP_HEADER << SASL_HEADER
    refused(play)


def test_server_that_offers_sasl_takes_a_client_without(script):
    play = script(sasl_mechanisms=["PLAIN"])
    play >> AMQP_HEADER << AMQP_HEADER
    assert not play.engine.finished


@pytest.mark.spec("5.3.1")
def test_server_without_sasl_refuses_the_sasl_header(script):
    play = script()
    play >> SASL_HEADER << AMQP_HEADER
    refused(play)


@pytest.mark.spec("5.3.1")
def test_server_opens_the_sasl_layer(script):
    play = script(sasl_mechanisms=["ANONYMOUS", "PLAIN"])
    play >> SASL_HEADER << SASL_HEADER
    play << like(SaslMechanisms, sasl_server_mechanisms=["ANONYMOUS", "PLAIN"])
    assert play.event(HeaderReceived).protocol_id == 3


@pytest.mark.spec("5.3.1")
def test_client_with_sasl_ends_when_the_server_wants_none(script):
    play = script(initiator=True, sasl=Anonymous())
    play << SASL_HEADER
    play >> AMQP_HEADER
    refused(play)


def test_nothing_is_read_after_the_end(script):
    play = script()
    play >> b"GET / HTTP/1.1\r\n\r\n" << AMQP_HEADER
    refused(play)
    play >> AMQP_HEADER
    assert play.events() == []
