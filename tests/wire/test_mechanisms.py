"""The mechanisms of a broker without users (AMQP 1.0 §5.3.3.1)."""

from __future__ import annotations

import pytest

from tests.raw.client import Client
from tests.raw.frames import SASL_HEADER
from tests.raw.process import Broker


@pytest.mark.spec("5.3.3.1")
def test_a_broker_without_users_takes_a_password_and_asks_for_none(broker: Broker) -> None:
    with Client(broker.port) as client:
        client.send(SASL_HEADER)
        assert client.take(8) == SASL_HEADER
        assert client.expect("sasl-mechanisms").field(0) == ["PLAIN", "ANONYMOUS"]
    for mechanism, response in (("ANONYMOUS", b""), ("PLAIN", b"\0ann\0whatever")):
        with Client(broker.port) as client:
            client.authenticate(mechanism, response).begin().close()
