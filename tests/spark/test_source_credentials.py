"""Credentials that a broker does not ask for are mentioned, once."""

from __future__ import annotations

import pytest

from pyspark_ferrymq.options import BrokerOptions, Values, connect
from tests.interop.broker_process import BrokerProcess

USERS = '[security.users]\nreader = "open sesame"\n'


def join(broker: BrokerProcess, **options: str) -> None:
    connect(BrokerOptions.parse(Values({"url": broker.url, **options})), "test").close()


@pytest.mark.parametrize("mechanism", ["auto", "PLAIN"])
def test_a_broker_that_lets_in_everybody(mechanism: str, caplog: pytest.LogCaptureFixture) -> None:
    with BrokerProcess() as broker:
        join(broker)
        assert caplog.messages == []
        for _ in range(2):
            join(broker, username="me", password="geheim", **{"sasl.mechanism": mechanism})
    (said,) = caplog.messages
    assert "credentials of the user 'me' are not checked" in said
    assert "geheim" not in said


def test_a_broker_with_users(caplog: pytest.LogCaptureFixture) -> None:
    with BrokerProcess(USERS) as broker:
        join(broker, username="reader", password="open sesame")
    assert caplog.messages == []
