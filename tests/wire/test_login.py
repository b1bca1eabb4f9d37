"""The login of a raw client, frame by frame (AMQP 1.0 §5.3)."""

from __future__ import annotations

import pytest

from tests.raw.client import Client
from tests.raw.frames import (
    SASL_HEADER,
    SASL_INIT,
    open_frame,
    sasl_frame,
    sasl_init,
    sasl_response,
)
from tests.raw.process import Broker
from tests.raw.values import NULL, symbol

OK = 0


# A broker with one user.
CONFIG = """
    [security]
    plain-without-tls = true
    [security.users]
    ann = "secret"
"""


def begin(client: Client, mechanism: str) -> None:
    """Choose a mechanism without an initial response."""
    client.send(SASL_HEADER, sasl_frame(SASL_INIT, symbol(mechanism), NULL))
    assert client.take(8) == SASL_HEADER
    client.expect("sasl-mechanisms")


@pytest.mark.spec("5.3.2")
def test_plain_without_an_initial_response_is_asked_for_it(broker: Broker) -> None:
    with Client(broker.port) as client:
        begin(client, "PLAIN")
        assert client.expect("sasl-challenge").field(0) == b""
        client.send(sasl_response(b"\0ann\0secret"))
        assert client.expect("sasl-outcome").field(0) == OK
        client.open(open_frame()).close()


@pytest.mark.spec("5.3.2")
def test_scram_without_an_initial_response_is_asked_for_it(broker: Broker) -> None:
    with Client(broker.port) as client:
        begin(client, "SCRAM-SHA-256")
        assert client.expect("sasl-challenge").field(0) == b""
        client.send(sasl_response(b"n,,n=ann,r=nonce"))
        challenge = client.expect("sasl-challenge").field(0)
        assert isinstance(challenge, bytes) and challenge.startswith(b"r=nonce")


@pytest.mark.spec("5.3.2")
def test_an_empty_challenge_is_asked_once(broker: Broker) -> None:
    with Client(broker.port) as client:
        begin(client, "PLAIN")
        client.expect("sasl-challenge")
        client.send(sasl_response(b""))
        assert client.expect("sasl-outcome").field(0) != OK
        assert client.ended()


@pytest.mark.spec("5.3.2")
def test_too_much_before_the_login_is_through_gets_an_outcome(broker: Broker) -> None:
    with Client(broker.port) as client:
        # A hash is being made while this arrives.
        client.send(
            SASL_HEADER,
            sasl_frame(SASL_INIT, symbol("PLAIN"), b"\xa0\x0b\0ann\0secret"),
            bytes(70_000),
        )
        assert client.take(8) == SASL_HEADER
        client.expect("sasl-mechanisms")
        assert client.expect("sasl-outcome").field(0) != OK
        assert client.ended()


@pytest.mark.spec("5.3.3.5")
def test_additional_data_comes_with_success_alone(broker: Broker) -> None:
    for name in ("ann", "bob"):
        with Client(broker.port) as client:
            client.send(SASL_HEADER, sasl_init("SCRAM-SHA-256", b"n,,n=%s,r=nonce" % name.encode()))
            client.take(8)
            client.expect("sasl-mechanisms")
            client.expect("sasl-challenge")
            client.send(sasl_response(b"c=biws,r=nonce,p=d3Jvbmc="))
            outcome = client.expect("sasl-outcome")
            assert outcome.field(0) != OK and outcome.field(1) is None
    with Client(broker.port) as client:
        client.send(SASL_HEADER, sasl_init("PLAIN", b"\0ann\0wrong"))
        client.take(8)
        client.expect("sasl-mechanisms")
        outcome = client.expect("sasl-outcome")
        assert outcome.field(0) != OK and outcome.field(1) is None
