"""Clients of AMQP 0-9-1 on the broker: each feature of the list, with each client that is here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.amqp_0_9_1.clients import (
    BROKERS,
    CLIENTS,
    BrokerUnderTest,
    Client,
    FerrymqUnderTest,
)
from tests.interop.amqp_0_9_1.features import Feature
from tests.interop.amqp_0_9_1.suite import ORACLE, suite_on
from tests.interop.brokers.sites import rabbit_root

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerUnderTest]:
    broker = FerrymqUnderTest()
    yield broker
    broker.close()


def present() -> list[Client]:
    """Return the clients that can be run; skip the test if there are none."""
    clients = [client for client in CLIENTS.values() if not client.missing()]
    if not clients:
        pytest.skip("none of the clients is here")
    return clients


def quick(client: Client, feature: Feature) -> bool:
    return not feature.slow


def everything(client: Client, feature: Feature) -> bool:
    return True


@pytest.mark.timeout(300)
def test_quick_features_with_each_client(broker: BrokerUnderTest) -> None:
    assert suite_on(broker).surprises(present(), quick) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_feature_with_each_client(broker: BrokerUnderTest) -> None:
    assert suite_on(broker).surprises(present(), everything) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_feature_on_rabbitmq() -> None:
    if rabbit_root("3") is None:
        pytest.skip("rabbitmq-server 3 is not installed")
    broker = BROKERS[ORACLE]()
    try:
        # One after the other: an alarm of this broker stops all publishers.
        found = [each for client in present() for each in _of(broker, client)]
    finally:
        broker.close()
    assert found == []


def _of(broker: BrokerUnderTest, client: Client) -> list[str]:
    return suite_on(broker, ORACLE).surprises([client], everything)


def test_expectations_name_features_and_clients() -> None:
    suite_on(None).check_expectations()
    suite_on(None, ORACLE).check_expectations()


def test_the_page_has_the_results() -> None:
    suite_on(None).check_page()
