"""Memory is given back when there is reason to, and not all the time."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from ferrymq_broker.server import housekeeping
from ferrymq_broker.server.housekeeping import ENOUGH, SHARE, WORTH_IT, Housekeeping
from tests.broker.harness import Network


class Loop:
    def __init__(self) -> None:
        self.me = self


class Time:
    """A clock that moves on by `step` whenever somebody looks."""

    def __init__(self) -> None:
        self.now = 100.0
        self.step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def lose_a_loop() -> weakref.ref[Loop]:
    loop = Loop()
    return weakref.ref(loop)


@pytest.fixture(autouse=True)
def no_automatic_collections() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def test_connections_that_are_gone_are_collected_once_there_were_enough() -> None:
    broker = Network().broker
    keeper = Housekeeping(broker, None, Time())
    lost = lose_a_loop()
    for _ in range(ENOUGH - 1):
        broker.new_id()
    keeper.look()
    assert lost() is not None
    broker.new_id()
    keeper.look()
    assert lost() is None


def test_collections_take_no_more_than_their_share_of_the_time() -> None:
    broker = Network().broker
    clock = Time()
    keeper = Housekeeping(broker, None, clock)
    for _ in range(ENOUGH):
        broker.new_id()
    clock.step = 0.5
    keeper.look()
    clock.step = 0.0
    for _ in range(ENOUGH):
        broker.new_id()
    lost = lose_a_loop()
    clock.now += 0.5 * SHARE - 1
    keeper.look()
    assert lost() is not None
    clock.now += 1
    keeper.look()
    assert lost() is None


def test_memory_goes_back_when_most_messages_are_gone() -> None:
    broker = Network().broker
    trims: list[int] = []
    keeper = Housekeeping(broker, lambda: trims.append(1), Time())
    for held in (0, 3 * WORTH_IT, 2 * WORTH_IT):
        broker.agenda.held = held
        keeper.look()
    assert not trims
    broker.agenda.held = WORTH_IT
    keeper.look()
    keeper.look()
    assert len(trims) == 1
    broker.agenda.held = 0
    keeper.look()
    keeper.look()
    assert len(trims) == 2


def test_a_few_messages_less_are_no_reason() -> None:
    broker = Network().broker
    trims: list[int] = []
    keeper = Housekeeping(broker, lambda: trims.append(1), Time())
    for held in (WORTH_IT - 1, 0, WORTH_IT - 1, 0):
        broker.agenda.held = held
        keeper.look()
    assert not trims


def test_the_c_library_is_asked_where_it_can_be() -> None:
    trim = housekeeping.find_trim()
    assert trim is None or trim() in (0, 1)
