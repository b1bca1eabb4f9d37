"""Methods of AMQP 0-9-1 frame by frame: what RabbitMQ answers, and what ferrymq answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("pamqp")

from tests.interop.amqp_0_9_1.clients import FerrymqUnderTest, RabbitmqUnderTest
from tests.interop.amqp_0_9_1.differences import PAGE, difference, judged, recorded, row
from tests.interop.amqp_0_9_1.scripts import SCRIPTS, Script
from tests.interop.brokers.sites import rabbit_root

pytestmark = [
    pytest.mark.interop,
    # pamqp says so of basic.recover-async, which RabbitMQ serves.
    pytest.mark.filterwarnings("ignore:This command is deprecated"),
]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    broker = FerrymqUnderTest()
    yield broker.site.port
    broker.close()


@pytest.mark.parametrize("script", [pytest.param(each, id=each.name) for each in SCRIPTS])
def test_as_rabbitmq_or_judged(port: int, script: Script) -> None:
    found = difference(recorded()[script.name], script.transcript(port))
    wanted = judged().get(script.name)
    assert found == wanted, (
        f"not as {PAGE.name} says; this would be its row:\n{row(script.name, found)}"
        if found
        else f"no difference; {PAGE.name} has one"
    )


def test_judged_differences_name_scripts() -> None:
    names = [script.name for script in SCRIPTS]
    assert len(set(names)) == len(names), "two scripts have one name"
    assert set(recorded()) == set(names), "run: python -m tests.interop.amqp_0_9_1 record"
    assert set(judged()) <= set(names)


@pytest.mark.slow
def test_the_record_is_what_rabbitmq_says() -> None:
    if rabbit_root("3") is None:
        pytest.skip("rabbitmq-server 3 is not installed")
    broker = RabbitmqUnderTest()
    try:
        said = {script.name: script.transcript(broker.site.port) for script in SCRIPTS}
    finally:
        broker.close()
    assert said == recorded()
