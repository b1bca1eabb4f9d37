"""A headers exchange with many bindings routes as if it compared the message with each of them."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.exchanges.headers_match import HeadersMatch
from ferrymq_broker.nodes.message import BrokerMessage
from ferrymq_broker.nodes.message_view import view_of
from ferrymq_broker.values.policy import ExchangePolicy
from ferrymq_types.messaging import ApplicationProperties, Data, MessageAnnotations
from tests.broker.harness import Network, encode

NAMES = st.sampled_from(["a", "b", "c", "x-d"])
VALUES = st.sampled_from(
    [0, 1, 1.0, True, False, "1", "one", b"one", Decimal(1), Decimal("NaN"), Decimal("sNaN"), None]
)
HEADERS: st.SearchStrategy[dict[str, object]] = st.dictionaries(NAMES, VALUES, max_size=3)
MATCHES = st.sampled_from(["all", "any", "all-with-x", "any-with-x"])
# What only message-annotations, and the arguments of bindings, can have.
DEEP = st.one_of(VALUES, st.just([1, 2]), st.just({"k": 1}))
WANTED = st.builds(
    lambda headers, match: headers | {"x-match": match},
    st.dictionaries(NAMES, DEEP, max_size=3),
    MATCHES,
)


@given(st.lists(WANTED, max_size=8), st.data())
def test_the_same_as_one_comparison_after_the_other(
    bindings: list[dict[str, object]], data: st.DataObject
) -> None:
    net = Network()
    exchange = net.space.create("x", ExchangePolicy(type="headers"))
    assert isinstance(exchange, Exchange)
    for number, arguments in enumerate(bindings):
        net.declare(f"q{number}")
        exchange.bind(f"q{number}", "", arguments)
    over = data.draw(st.sets(st.sampled_from(range(len(bindings))))) if bindings else set()
    for number in over:
        exchange.unbind(f"q{number}", "", bindings[number])
    sections = (
        MessageAnnotations(
            value=dict(data.draw(st.dictionaries(st.just("x-d"), DEEP, max_size=1)))
        ),
        ApplicationProperties(value=data.draw(HEADERS)),
        Data(value=b""),
    )
    net.connect().sender("x").send_sections(*sections)
    view = view_of(BrokerMessage(encode(*sections), 0, 0))
    for number, arguments in enumerate(bindings):
        expected = number not in over and HeadersMatch(arguments).matches(view)
        assert net.queue(f"q{number}").message_count() == int(expected)
