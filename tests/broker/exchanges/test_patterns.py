"""Patterns of a topic exchange, many at a time, against a plain reading of the rules."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.values.policy import ExchangePolicy
from ferrymq_types.messaging import Data, Properties
from tests.broker.harness import Network

words = st.sampled_from(["a", "b", "", "*", "#"])
patterns = st.lists(words, max_size=6).map(".".join)
keys = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=6).map(".".join)


def words_of(text: str) -> list[str]:
    return text.split(".") if text else []


def matches(pattern: list[str], key: list[str]) -> bool:
    """``*`` is one word, ``#`` any number; without words there is one key that matches."""
    if not pattern:
        return not key
    if pattern[0] == "#":
        return any(matches(pattern[1:], key[skipped:]) for skipped in range(len(key) + 1))
    return bool(key) and pattern[0] in ("*", key[0]) and matches(pattern[1:], key[1:])


@given(
    bound=st.lists(patterns, min_size=1, max_size=12),
    unbound=st.sets(st.integers(0, 11)),
    routed=st.lists(keys, min_size=1, max_size=8),
)
def test_all_bindings_that_match_and_no_others(
    bound: list[str], unbound: set[int], routed: list[str]
) -> None:
    net = Network()
    exchange = net.space.create("x", ExchangePolicy(type="topic"))
    assert isinstance(exchange, Exchange)
    for number, pattern in enumerate(bound):
        net.declare(f"q{number}")
        exchange.bind(f"q{number}", pattern)
    for number in unbound:
        if number < len(bound):
            exchange.unbind(f"q{number}", bound[number])
    sender = net.connect().sender("x")
    for key in routed:
        before = [net.queue(f"q{number}").available for number in range(len(bound))]
        sender.send_sections(Properties(subject=key), Data(value=b""))
        for number, pattern in enumerate(bound):
            got = net.queue(f"q{number}").available - before[number]
            wanted = number not in unbound and matches(words_of(pattern), words_of(key))
            assert got == int(wanted), (pattern, key)


def test_hostile_patterns_cost_no_more_than_others(net: Network) -> None:
    exchange = net.space.create("x", ExchangePolicy(type="topic"))
    assert isinstance(exchange, Exchange)
    net.declare("q")
    exchange.bind("q", ".".join(["#", "a"] * 500))
    exchange.bind("q", ".".join(["#", "*"] * 500))
    exchange.bind("q", "#." * 900 + "#.b")
    sender = net.connect().sender("x")
    for key in (".".join(["a"] * 1000), ".".join(["a"] * 499), ".".join(["c"] * 1000) + ".b"):
        sender.send_sections(Properties(subject=key), Data(value=b""))
    assert net.queue("q").available == 2
