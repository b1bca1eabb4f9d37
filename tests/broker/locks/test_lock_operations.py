"""RENEW-LOCKS and SETTLE: what receivers do with locked messages over the management node."""

from __future__ import annotations

import pytest

from ferrymq_broker.values.policy import QueuePolicy, TopicPolicy
from ferrymq_codec.scalars import Timestamp
from ferrymq_types.messaging import Accepted
from tests.broker.harness import Network, header, message_annotations
from tests.broker.locks.test_locks import figures, is_lost, locked_queue, tell
from tests.broker.management.asker import Asker


def test_a_renewed_lock_holds_from_now_on(net: Network, asker: Asker) -> None:
    locked_queue(net, b"a", b"b")
    receiver = net.connect().receiver("q", credit=2)
    first, second = receiver.take()
    net.advance(20)
    answer = asker.ask("RENEW-LOCKS", "queue", "q", {"tokens": [first.tag]})
    assert answer.map() == {"expirations": [net.wall + 30_000]}
    net.advance(20)
    assert figures(net, "locked", "locks-lost") == [1, 1]
    tell(receiver, first, Accepted())
    assert first.remote_state == Accepted()
    tell(receiver, second, Accepted())
    assert is_lost(second)


def test_a_renewal_is_done_for_all_tokens_or_for_none(net: Network, asker: Asker) -> None:
    locked_queue(net, b"a")
    receiver = net.connect().receiver("q", credit=1)
    (delivery,) = receiver.take()
    net.advance(20)
    unknown = bytes(16)
    request = {"tokens": [delivery.tag, unknown]}
    answer = asker.ask("RENEW-LOCKS", "queue", "q", request)
    assert answer.status == 410 and unknown.hex() in answer.description
    assert answer.properties["errorCondition"] == "ferrymq:lock-lost"
    assert answer.map() == {"tokens": [unknown]}
    net.advance(11)
    assert figures(net, "locks-lost") == [1]


def test_a_message_is_settled_by_token_without_its_link(net: Network, asker: Asker) -> None:
    locked_queue(net, b"a")
    client = net.connect()
    (delivery,) = client.receiver("q", credit=1).deliveries
    client.lose()
    request = {"tokens": [delivery.tag], "outcome": "accepted"}
    assert asker.ask("SETTLE", "queue", "q", request).map() == {"count": 1}
    assert figures(net, "messages", "accepted", "locked") == [0, 1, 0]
    answer = asker.ask("SETTLE", "queue", "q", request)
    assert answer.status == 410 and delivery.tag.hex() in answer.description


def test_an_outcome_on_the_link_is_late_after_one_by_token(net: Network, asker: Asker) -> None:
    locked_queue(net, b"a")
    receiver = net.connect().receiver("q", credit=1)
    (delivery,) = receiver.take()
    request = {"tokens": [delivery.tag], "outcome": "released"}
    assert asker.ask("SETTLE", "queue", "q", request).status == 200
    tell(receiver, delivery, Accepted())
    assert is_lost(delivery)
    assert figures(net, "available", "released", "accepted") == [1, 1, 0]


@pytest.mark.parametrize(
    ("outcome", "details", "expected"),
    [
        ("accepted", {}, {"accepted": 1, "messages": 0}),
        ("released", {}, {"released": 1, "available": 1}),
        ("modified", {"delivery-failed": True}, {"modified": 1, "available": 1}),
        ("rejected", {}, {"rejected": 1, "dead-lettered": 1}),
        ("rejected", {"condition": "x:bad", "description": "d"}, {"dead-lettered": 1}),
    ],
)
def test_each_outcome_has_its_effect(
    net: Network,
    asker: Asker,
    outcome: str,
    details: dict[str, object],
    expected: dict[str, int],
) -> None:
    locked_queue(net, b"a")
    (delivery,) = net.connect().receiver("q", credit=1).deliveries
    request = {"tokens": [delivery.tag], "outcome": outcome, **details}
    assert asker.ask("SETTLE", "queue", "q", request).map() == {"count": 1}
    assert figures(net, *expected) == list(expected.values())


def test_annotations_and_failures_come_with_the_next_delivery(net: Network, asker: Asker) -> None:
    locked_queue(net, b"a")
    (delivery,) = net.connect().receiver("q", credit=1).deliveries
    request = {
        "tokens": [delivery.tag],
        "outcome": "modified",
        "delivery-failed": True,
        "annotations": {"x-opt-why": "busy"},
    }
    assert asker.ask("SETTLE", "queue", "q", request).status == 200
    (again,) = net.connect().receiver("q", credit=1).deliveries
    assert header(again.payload).delivery_count == 1
    assert message_annotations(again.payload)["x-opt-why"] == "busy"


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"tokens": []},
        {"tokens": [b"short"]},
        {"tokens": ["0123456789abcdef"]},
        {"tokens": [bytes(16)] * 1001},
        {"tokens": [bytes(16)], "outcome": "lost"},
        {"tokens": [bytes(16)], "outcome": "accepted", "annotations": {}},
        {"tokens": [bytes(16)], "outcome": "modified", "annotations": "no map"},
        {"tokens": [bytes(16)], "outcome": "modified", "delivery-failed": 7},
    ],
)
def test_a_malformed_request_is_refused(
    net: Network, asker: Asker, request_: dict[str, object]
) -> None:
    locked_queue(net, b"a")
    assert asker.ask("SETTLE", "queue", "q", request_).status == 400


def test_a_queue_without_locks_has_no_tokens(net: Network, asker: Asker) -> None:
    net.declare("plain")
    request = {"tokens": [bytes(16)]}
    assert asker.ask("RENEW-LOCKS", "queue", "plain", request).status == 410


def test_peek_shows_until_when_a_message_is_locked(net: Network, asker: Asker) -> None:
    locked_queue(net, b"a", b"b")
    net.connect().receiver("q", credit=1)
    messages = asker.ask("PEEK", "queue", "q").map()["messages"]
    assert isinstance(messages, list)
    first, second = messages
    assert first["locked-until"] == net.wall + 30_000
    assert type(first["locked-until"]) is Timestamp
    assert (first["state"], "locked-until" in second) == ("acquired", False)


def test_subscriptions_have_the_operations(net: Network, asker: Asker) -> None:
    net.space.create("t", TopicPolicy(subscription=QueuePolicy(lock_duration=10_000)))
    assert asker.ask("CREATE", "subscription", "t::s").status == 201
    net.connect().sender("t").send(b"a")
    (delivery,) = net.connect().receiver("t::s", credit=1).deliveries
    tokens = {"tokens": [delivery.tag]}
    assert asker.ask("RENEW-LOCKS", "subscription", "t::s", tokens).status == 200
    request = {**tokens, "outcome": "accepted"}
    assert asker.ask("SETTLE", "subscription", "t::s", request).status == 200
    row = asker.ask("READ", "subscription", "t::s").map()
    assert (row["messages"], row["locked"], row["locks-lost"]) == (0, 0, 0)
