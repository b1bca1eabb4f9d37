"""The suite of clients of AMQP 0-9-1: features, clients, expectations and the page."""

from __future__ import annotations

from typing import Final

from tests.interop.amqp_0_9_1.clients import CLIENTS, HERE, BrokerUnderTest, Client, Runner
from tests.interop.amqp_0_9_1.expectations import EXPECTATIONS, ON_RABBITMQ
from tests.interop.amqp_0_9_1.features import FEATURES
from tests.interop.features.suite import Suite, page_of

ORACLE: Final = "rabbitmq"


def suite_on(broker: BrokerUnderTest | None, key: str = "ferrymq") -> Suite:
    """Return the suite on a broker; None if nothing will be tried. `key` is that of `BROKERS`."""

    def runner(client: Client) -> Runner:
        assert broker is not None
        return Runner(client, broker)

    return Suite(
        "tests.interop.amqp_0_9_1",
        HERE,
        page_of("amqp-0-9-1-compatibility.md"),
        FEATURES,
        CLIENTS,
        ON_RABBITMQ if key == ORACLE else EXPECTATIONS,
        runner,
    )
