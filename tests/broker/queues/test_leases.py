"""Leases: messages of a queue that are kept for a holder, under a number."""

from __future__ import annotations

import pytest

from ferrymq_broker.nodes.queues.leases import MOST_LEASES
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_codec.scalars import Timestamp
from ferrymq_types.messaging import Accepted
from tests.broker.harness import Network
from tests.broker.queues.leasing import Leasing, fill, read
from tests.broker.queues.links import consume, numbered, publish


@pytest.fixture
def leasing(net: Network) -> Leasing:
    net.declare("q")
    return Leasing(net)


def test_the_same_request_returns_the_same_lease(net: Network, leasing: Leasing) -> None:
    fill(net, 10)
    first = leasing.ask("LEASE", number=1, messages=4, duration=60_000)
    assert first.map() == {
        "holder": "h",
        "number": 1,
        "messages": 4,
        "bytes": first.map()["bytes"],
        "expiry": Timestamp(net.wall + 60_000),
        "available": 6,
    }
    net.advance(1)
    assert leasing.ask("LEASE", number=1, messages=9).map() == first.map()
    assert leasing.lease(2) == 6
    assert leasing.listed() == [("h", 1, 4), ("h", 2, 6)]


def test_a_lease_is_read_any_number_of_times_in_the_same_order(
    net: Network, leasing: Leasing
) -> None:
    fill(net, 6)
    assert leasing.lease(1, messages=5) == 5
    for _ in range(3):
        assert leasing.read(1) == numbered(0, 5)
    assert leasing.read(1, first=1, until=3) == numbered(1, 2)
    assert consume(net.connect(), "q", credit=10).bodies() == numbered(5, 1)


def test_settled_messages_are_gone_and_later_leases_stay(net: Network, leasing: Leasing) -> None:
    fill(net, 6)
    for number in (1, 2, 3):
        assert leasing.lease(number, messages=2) == 2
    assert leasing.ask("SETTLE-LEASES", until=2).map() == {"numbers": [1, 2], "messages": 4}
    assert leasing.settle(2) == 0
    queue = net.queue("q")
    assert queue.message_count() == 2 and queue.accepted == 4
    assert leasing.read(3) == numbered(4, 2)


def test_released_messages_return_to_their_places(net: Network, leasing: Leasing) -> None:
    fill(net, 4)
    leasing.lease(1, messages=2)
    assert leasing.ask("RELEASE-LEASES").map() == {"numbers": [1], "messages": 2}
    receiver = consume(net.connect(), "q", credit=10)
    assert receiver.bodies() == numbered(0, 4)
    assert leasing.listed() == []


def test_a_lease_lapses_as_a_failed_delivery(net: Network, leasing: Leasing) -> None:
    fill(net, 3)
    leasing.lease(1, messages=2, duration=10_000)
    reader = read(net.connect(), "h", 1)
    net.advance(9)
    assert not reader.detached
    net.advance(2)
    assert reader.detached and reader.error is not None
    assert reader.error.condition == "ferrymq:lease-lost"
    queue = net.queue("q")
    assert queue.available == 3 and queue.figures()["leases-lost"] == 1
    assert leasing.lease(2) == 3
    assert leasing.read(2) == numbered(0, 3)
    assert [entry.failures for entry in queue.peek(9)] == [1, 1, 0]


def test_renewing_extends_all_leases_of_the_holder(net: Network, leasing: Leasing) -> None:
    fill(net, 4)
    other = Leasing(net, "other")
    leasing.lease(1, messages=1, duration=10_000)
    leasing.lease(2, messages=1, duration=10_000)
    other.lease(1, messages=1, duration=10_000)
    net.advance(8)
    renewed = leasing.ask("RENEW-LEASES", duration=20_000)
    assert [one["number"] for one in renewed.map()["leases"]] == [1, 2]  # type: ignore[attr-defined]
    net.advance(8)
    assert leasing.listed() == [("h", 1, 1), ("h", 2, 1)]
    net.advance(8)
    # Without a duration, the last one.
    assert leasing.ask("RENEW-LEASES").status == 200
    net.advance(19)
    assert len(leasing.listed()) == 2
    net.advance(2)
    lost = leasing.ask("RENEW-LEASES")
    assert lost.status == 410 and lost.properties["errorCondition"] == "ferrymq:lease-lost"


def test_poison_becomes_a_dead_letter_by_the_policy(net: Network) -> None:
    net.declare("dead")
    net.declare("q", QueuePolicy(delivery_limit=2, dead_letter="dead"))
    leasing = Leasing(net)
    fill(net, 2)
    for number in (1, 2, 3):
        assert leasing.lease(number, duration=1_000) == 2
        net.advance(2)
    assert leasing.lease(4) == 0
    assert consume(net.connect(), "dead", credit=10).bodies() == numbered(0, 2)


def test_a_lease_without_messages_is_none(leasing: Leasing) -> None:
    answer = leasing.ask("LEASE", number=1)
    assert answer.map()["messages"] == 0 and answer.map()["expiry"] is None
    assert leasing.listed() == []


def test_bytes_limit_a_lease_that_has_a_message(net: Network, leasing: Leasing) -> None:
    publish(net.connect().sender("q"), *[b"x" * 1000] * 5)
    assert leasing.lease(1, bytes=10) == 1
    assert leasing.lease(2, bytes=2500) == 2


def test_numbers_of_a_holder_grow(net: Network, leasing: Leasing) -> None:
    fill(net, 3)
    leasing.lease(5, messages=1)
    assert leasing.ask("LEASE", number=4).status == 409
    assert Leasing(net, "other").lease(1, messages=1) == 1


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("LEASE", {}),
        ("LEASE", {"number": -1}),
        ("LEASE", {"number": 1, "holder": ""}),
        ("LEASE", {"number": 1, "duration": 10}),
        ("LEASE", {"number": 1, "messages": 0}),
        ("LEASE", {"number": 1, "selector": "TRUE"}),
        ("SETTLE-LEASES", {}),
        ("RENEW-LEASES", {"duration": 90_000_000}),
    ],
)
def test_wrong_requests(leasing: Leasing, operation: str, arguments: dict[str, object]) -> None:
    assert leasing.ask(operation, **arguments).status == 400


def test_the_number_of_leases_is_limited(net: Network, leasing: Leasing) -> None:
    fill(net, MOST_LEASES + 1)
    first = Leasing(net, "first")
    for number in range(MOST_LEASES // 2):
        first.lease(number, messages=1)
        leasing.lease(number, messages=1)
    answer = leasing.ask("LEASE", number=MOST_LEASES)
    assert answer.status == 507 and answer.description.endswith("leases already")
    leasing.settle(0)
    assert leasing.lease(MOST_LEASES) == 1


@pytest.mark.parametrize(
    "policy",
    [
        QueuePolicy(sessions=True),
        QueuePolicy(groups=True),
        QueuePolicy(single_active=True),
        QueuePolicy(exclusive=True),
    ],
)
def test_queues_whose_messages_go_to_certain_consumers_give_none(
    net: Network, policy: QueuePolicy
) -> None:
    net.declare("q", policy)
    answer = Leasing(net).ask("LEASE", number=1)
    assert answer.status == 409 and answer.description.endswith("no leases")


def test_an_exclusive_consumer_keeps_leases_out(net: Network, leasing: Leasing) -> None:
    receiver = consume(net.connect(), "q", exclusive=True)
    assert leasing.ask("LEASE", number=1).status == 409
    receiver.close()
    assert leasing.ask("LEASE", number=1).status == 200


# -- with other features -----------------------------------------------------------------------


def test_urgent_messages_come_first(net: Network, leasing: Leasing) -> None:
    sender = net.connect().sender("q")
    publish(sender, b"low", priority=1)
    publish(sender, b"high", priority=9)
    assert leasing.lease(1, messages=1) == 1
    assert leasing.read(1) == [b"high"]


def test_messages_expire_when_their_lease_is_over(net: Network) -> None:
    net.declare("q", QueuePolicy(message_ttl=5_000))
    leasing = Leasing(net)
    fill(net, 2)
    leasing.lease(1, messages=1, duration=60_000)
    net.advance(10)
    assert leasing.read(1) == numbered(0, 1)
    assert leasing.ask("RELEASE-LEASES").status == 200
    assert net.queue("q").message_count() == 0


def test_a_purge_leaves_leased_messages(net: Network, leasing: Leasing) -> None:
    fill(net, 3)
    leasing.lease(1, messages=1)
    assert leasing.asker.ask("PURGE", "queue", "q").map() == {"count": 2}
    assert leasing.read(1) == numbered(0, 1)


def test_a_deleted_queue_ends_its_leases(net: Network, leasing: Leasing) -> None:
    fill(net, 3)
    leasing.lease(1)
    reader = read(net.connect(), "h", 1)
    assert leasing.asker.ask("DELETE", "queue", "q").status == 204
    assert reader.detached and net.broker.agenda.held == net.broker.agenda.pinned == 0
    net.advance(1000)
    net.declare("q")
    assert leasing.listed() == []
    assert leasing.ask("RENEW-LEASES").status == 410


def test_a_link_to_a_lease_makes_no_queue(net: Network, leasing: Leasing) -> None:
    fill(net, 3)
    leasing.lease(1)
    assert leasing.asker.ask("DELETE", "queue", "q").status == 204
    reader = read(net.connect(), "h", 1)
    assert reader.error is not None and reader.error.condition == "amqp:not-found"
    assert "q" not in net.space.nodes
    # Any other link makes it.
    net.connect().receiver("q")
    assert "q" in net.space.nodes
    reader = read(net.connect(), "h", 1)
    assert reader.error is not None and reader.error.condition == "ferrymq:lease-lost"


def test_a_last_value_that_was_replaced_does_not_come_back(net: Network) -> None:
    net.declare("q", QueuePolicy(last_value_key="k"))
    leasing = Leasing(net)
    sender = net.connect().sender("q")
    publish(sender, b"old", k="a")
    leasing.lease(1)
    publish(sender, b"new", k="a")
    leasing.ask("RELEASE-LEASES")
    assert consume(net.connect(), "q", credit=10).bodies() == [b"new"]


def test_a_disabled_queue_gives_no_leases_and_settles_them(net: Network, leasing: Leasing) -> None:
    fill(net, 2)
    leasing.lease(1, messages=1)
    reader = read(net.connect(), "h", 1)
    assert leasing.asker.ask("UPDATE", "queue", "q", {"receive-disabled": True}).status == 200
    assert reader.detached
    assert leasing.ask("LEASE", number=2).status == 400
    assert leasing.settle(1) == 1


def test_a_consumer_and_a_lease_never_have_the_same_message(net: Network, leasing: Leasing) -> None:
    fill(net, 4)
    receiver = consume(net.connect(), "q", credit=2)
    assert receiver.bodies() == numbered(0, 2)
    assert leasing.lease(1, messages=1) == 1 and leasing.read(1) == numbered(2, 1)
    receiver.settle(Accepted())
    receiver.credit(10)
    assert receiver.bodies() == numbered(3, 1)


def test_the_queue_shows_its_leases(net: Network, leasing: Leasing) -> None:
    fill(net, 4)
    leasing.lease(1, messages=3)
    shown = leasing.asker.ask("READ", "queue", "q").map()
    assert (shown["leased"], shown["leases"], shown["acquired"]) == (3, 1, 3)
