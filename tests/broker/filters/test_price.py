"""What it costs to ask a filter: what a broker lets one link have it do in a turn goes by that."""

from __future__ import annotations

from ferrymq_broker.filters.predicates import TopicFilter
from ferrymq_broker.nodes.message import BrokerMessage, admit
from ferrymq_types.messaging import Data, Properties
from tests.broker.harness import encode

SHORT = TopicFilter("usd.*")
LONG = TopicFilter(".".join(["#", "*"] * 250))


def message(subject: str, body: bytes = b"body") -> BrokerMessage:
    return admit(encode(Properties(subject=subject), Data(value=body)), 0)


def test_a_long_pattern_costs_more_than_a_short_one() -> None:
    asked = message("usd.stock")
    assert SHORT.price(asked) == 1
    assert LONG.price(asked) >= 7


def test_what_is_in_front_of_the_body_costs_in_proportion() -> None:
    for chosen in (SHORT, LONG):
        short = chosen.price(message("x"))
        once = chosen.price(message(".".join(["x"] * 5_000)))
        twice = chosen.price(message(".".join(["x"] * 10_000)))
        assert once > 15 * short
        assert 1.9 * once < twice <= 2 * once


def test_the_body_costs_nothing() -> None:
    """No filter looks at it."""
    assert SHORT.price(message("usd", bytes(100_000))) == 1
