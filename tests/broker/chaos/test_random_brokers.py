"""Plays of random clients: a few here, as many as you like from the command line."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.broker.chaos.play import Play
from tests.support.lanes import amount

# Enough that what is seldom happens several times, whatever a change does to the order.
SEEDS = amount(48, 96)
STEPS = 200


@pytest.fixture(scope="module")
def happened() -> Counter[str]:
    """What the plays came to: all of them hold, or this raises."""
    total: Counter[str] = Counter()
    for seed in range(SEEDS):
        total += Play(seed, STEPS).run()
    return total


def test_everything_is_as_it_has_to_be_after_every_step(happened: Counter[str]) -> None:
    # A play in which nothing happens proves nothing.
    assert happened["sent"] > 1000
    assert happened["received"] > 200
    assert happened["drains behind a shut window"] > 3 and happened["committed"] > 30
    assert happened["half postings"] > 20 and happened["commits refused"] > 20
    assert happened["attached elsewhere"] > 30 and happened["accepted"] > 200


@pytest.mark.parametrize(
    "condition", ["amqp:resource-deleted", "amqp:link:stolen", "amqp:not-found"]
)
def test_links_end_in_many_ways(happened: Counter[str], condition: str) -> None:
    assert happened[f"link: {condition}"] > 0


def test_a_broker_with_a_store_is_at_every_step_what_its_store_says() -> None:
    total: Counter[str] = Counter()
    for seed in range(SEEDS // 6):
        total += Play(seed, STEPS, stored=True).run()
    assert total["restarts"] > 10 and total["received"] > 15


@pytest.fixture(scope="module", params=[False, True], ids=["memory", "stored"])
def copied(request: pytest.FixtureRequest) -> Counter[str]:
    """What plays came to that are of streams above all."""
    total: Counter[str] = Counter()
    for seed in range(amount(24, 72)):
        total += Play(seed, STEPS, stored=request.param, streams=True).run()
    return total


def test_journeys_have_every_record_once_and_what_is_held_is_there(copied: Counter[str]) -> None:
    assert copied["chunks"] > 30 and copied["arrived"] > 5 and copied["held"] > 100


@pytest.mark.parametrize("way", ["gaps", "commit", "roll back"])
def test_journeys_go_on_in_many_ways(copied: Counter[str], way: str) -> None:
    assert copied[way] > 0


def test_a_broker_stops_while_the_disk_is_slow(copied: Counter[str]) -> None:
    assert copied["lost"] > 5 or copied["restarts"] == 0
