"""A filter decides about a message once and for all (AMQP 1.0 §3.5.1)."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq_types.messaging import Accepted, Modified, Released
from ferrymq_types.unions import Outcome
from tests.broker.harness import Network
from tests.broker.queues.links import consume, publish

SELECTORS: Final = {
    "n > 1": {2, 3},
    "n = 0 OR n = 3": {0, 3},
    "NOT n = 2": {0, 1, 3},
    "m IS NULL": {0, 1, 2, 3},
    "m = 1": set[int](),
}
RETURNS: Final[list[Outcome]] = [
    Released(),
    Modified(delivery_failed=True),
    Modified(delivery_failed=False),
]


@pytest.mark.spec("3.5.1")
@given(
    numbers=st.lists(st.integers(0, 3), min_size=1, max_size=12),
    rounds=st.lists(
        st.tuples(st.sampled_from(sorted(SELECTORS)), st.sampled_from(RETURNS), st.booleans()),
        min_size=1,
        max_size=8,
    ),
)
def test_a_message_passes_always_or_never(
    numbers: list[int], rounds: list[tuple[str, Outcome, bool]]
) -> None:
    """However often a message has come back, and whoever asks: a consumer or a browser."""
    net = Network()
    sender = net.connect().sender("q")
    for place, number in enumerate(numbers):
        publish(sender, b"%d" % place, n=number)
    for selector, outcome, browses in rounds:
        passing = [
            b"%d" % place for place, number in enumerate(numbers) if number in SELECTORS[selector]
        ]
        client = net.connect()
        mode = "copy" if browses else None
        receiver = consume(client, "q", len(numbers) + 1, selector=selector, mode=mode)
        assert receiver.bodies() == passing
        receiver.link.set_credit(0)
        receiver.settle(outcome)
        client.close()


@pytest.mark.spec("3.5.1", "3.5.8")
def test_what_did_not_pass_is_not_looked_at_again_and_stays_for_others(net: Network) -> None:
    sender = net.connect().sender("q")
    publish(sender, b"a", b"b", n=1)
    picky = consume(net.connect(), "q", 10, selector="n = 2")
    asked = net.queue("q").registry.evaluations()
    publish(sender, b"c", n=2)
    assert picky.bodies() == [b"c"]
    picky.settle(Released())
    picky.settle(Accepted())
    assert net.queue("q").registry.evaluations() == asked + 1
    assert consume(net.connect(), "q", 10).bodies() == [b"a", b"b"]
