"""Methods of AMQP 0-9-1 frame by frame: what RabbitMQ answers, and what ferrymq answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

import pytest

pytest.importorskip("pamqp")

from tests.interop.amqp_0_9_1.clients import FerrymqUnderTest, RabbitmqUnderTest
from tests.interop.amqp_0_9_1.differences import PAGE, difference, judged, recorded, row
from tests.interop.amqp_0_9_1.scripts import SCRIPTS
from tests.interop.amqp_0_9_1.transcript import Script
from tests.interop.brokers.sites import rabbit_root

pytestmark = [
    pytest.mark.interop,
    # pamqp says so of basic.recover-async, which RabbitMQ serves.
    pytest.mark.filterwarnings("ignore:This command is deprecated"),
]


# Scripts spend their time on waiting for what does not come.
AT_ONCE: Final = 16


@contextmanager
def playing(scripts: Iterable[Script], port: int) -> Iterator[dict[str, Future[list[str]]]]:
    """Play scripts at once, but for those of a guest, which share a queue; give their transcripts
    by name."""
    with ThreadPoolExecutor(AT_ONCE) as pool, ThreadPoolExecutor(1) as guest:
        yield {
            script.name: (pool if script.user == "alice" else guest).submit(script.transcript, port)
            for script in scripts
        }


@pytest.fixture(scope="module")
def transcript(request: pytest.FixtureRequest) -> Iterator[Callable[[Script], list[str]]]:
    """Function that returns what ferrymq answers to a script of the tests of this run."""
    chosen = {
        item.callspec.params["script"]
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.originalname == test_as_rabbitmq_or_judged.__name__
        and item.path == request.path
    }
    broker = FerrymqUnderTest()
    with playing(chosen, broker.site.port) as played:
        yield lambda script: played[script.name].result()
    broker.close()


@pytest.mark.parametrize("script", [pytest.param(each, id=each.name) for each in SCRIPTS])
def test_as_rabbitmq_or_judged(transcript: Callable[[Script], list[str]], script: Script) -> None:
    found = difference(recorded()[script.name], transcript(script))
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
        with playing(SCRIPTS, broker.site.port) as played:
            said = {name: each.result() for name, each in played.items()}
    finally:
        broker.close()
    assert said == recorded()
