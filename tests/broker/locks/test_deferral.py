"""Deferred messages: they wait for a receiver that asks for them by their numbers."""

from __future__ import annotations

import pytest

from ferrymq_broker.management.sliced_query import finish
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_codec.scalars import Timestamp
from ferrymq_types.messaging import Accepted, Header, Modified, Released
from tests.broker.harness import Network, header, message_annotations, text
from tests.broker.locks.conftest import with_management
from tests.broker.locks.test_locks import figures, locked_queue
from tests.broker.management.asker import Answer, Asker

POLICY = QueuePolicy(lock_duration=30_000, deferral=True, persist=True)
DEFER = Modified(undeliverable_here=True)


def defer(net: Network, count: int = 1) -> None:
    """Defer the first messages of the queue."""
    receiver = net.connect().receiver("q", credit=count)
    receiver.settle(DEFER)
    receiver.link.detach(closed=True)
    net.run()


def receive(asker: Asker, *sequences: int, settled: bool = False) -> Answer:
    request: dict[str, object] = {"sequences": list(sequences)}
    if settled:
        request["settled"] = True
    return asker.ask("RECEIVE-DEFERRED", "queue", "q", request)


def messages(answer: Answer) -> list[dict[str, object]]:
    assert answer.status == 200, answer.description
    found = answer.map()["messages"]
    assert isinstance(found, list)
    return found


def body(message: dict[str, object]) -> bytes:
    payload = message["message"]
    assert isinstance(payload, bytes)
    return text(payload)


def settle(asker: Asker, message: dict[str, object], outcome: str, **more: object) -> Answer:
    request = {"tokens": [message["token"]], "outcome": outcome, **more}
    return asker.ask("SETTLE", "queue", "q", request)


def test_a_deferred_message_is_offered_to_nobody(net: Network, asker: Asker) -> None:
    locked_queue(net, b"a", b"b", policy=POLICY)
    defer(net)
    receiver = net.connect().receiver("q", credit=10)
    assert receiver.bodies() == [b"b"]
    assert net.connect().receiver("q", mode="copy", credit=10).bodies() == []
    assert figures(net, "deferred", "acquired", "available", "messages") == [1, 1, 0, 2]
    peeked = messages(asker.ask("PEEK", "queue", "q"))
    assert [message["state"] for message in peeked] == ["deferred", "acquired"]


def test_a_queue_without_deferral_excludes_the_consumer(net: Network, asker: Asker) -> None:
    locked_queue(net, b"a")
    receiver = net.connect().receiver("q", credit=2)
    receiver.settle(DEFER)
    assert receiver.bodies() == [] and figures(net, "deferred", "available") == [0, 1]
    (delivery,) = net.connect().receiver("q", credit=1).deliveries
    request = {"tokens": [delivery.tag], "outcome": "deferred"}
    assert asker.ask("SETTLE", "queue", "q", request).status == 409


def test_it_is_received_by_its_number_and_locked(net: Network, asker: Asker) -> None:
    locked_queue(net, b"a", b"b", b"c", policy=POLICY)
    defer(net, 2)
    second, first = messages(receive(asker, 2, 1))
    assert (body(first), body(second)) == (b"a", b"b")
    assert first["locked-until"] == net.wall + 30_000
    assert type(first["locked-until"]) is Timestamp
    assert figures(net, "deferred", "locked", "available") == [0, 2, 1]
    assert settle(asker, first, "accepted").status == 200
    assert settle(asker, second, "rejected").status == 200
    assert figures(net, "messages", "accepted", "rejected") == [1, 1, 1]


def test_it_is_removed_at_once_if_it_is_received_settled(net: Network, asker: Asker) -> None:
    locked_queue(net, b"a", policy=QueuePolicy(deferral=True))
    defer(net)
    assert receive(asker, 1).status == 409
    (message,) = messages(receive(asker, 1, settled=True))
    assert body(message) == b"a" and "token" not in message
    assert figures(net, "messages", "accepted", "deferred") == [0, 1, 0]


def test_unknown_and_locked_numbers_take_nothing(net: Network, asker: Asker) -> None:
    locked_queue(net, b"a", b"b", b"c", policy=POLICY)
    defer(net, 2)
    messages(receive(asker, 1))
    # The first is locked, the third was never deferred, there is no seventh.
    answer = receive(asker, 1, 2, 3, 7)
    assert answer.status == 404 and answer.map() == {"sequences": [1, 3, 7]}
    assert figures(net, "deferred", "locked") == [1, 1]


@pytest.mark.parametrize("sequences", [None, [], ["1"], [True], [1] * 1001])
def test_a_malformed_request_is_refused(net: Network, asker: Asker, sequences: object) -> None:
    locked_queue(net, b"a", policy=POLICY)
    request = {"sequences": sequences}
    assert asker.ask("RECEIVE-DEFERRED", "queue", "q", request).status == 400


@pytest.mark.parametrize("how", ["released", "modified", "lapsed"])
def test_it_is_deferred_again_if_it_comes_back(net: Network, asker: Asker, how: str) -> None:
    locked_queue(net, b"a", policy=POLICY)
    defer(net)
    (message,) = messages(receive(asker, 1))
    if how == "lapsed":
        net.advance(31)
    else:
        details: dict[str, object] = {"delivery-failed": True} if how == "modified" else {}
        assert settle(asker, message, how, **details).status == 200
    assert net.connect().receiver("q", credit=1).bodies() == []
    assert figures(net, "deferred", "locked") == [1, 0]
    (again,) = messages(receive(asker, 1))
    assert again["failures"] == (0 if how == "released" else 1)
    payload = again["message"]
    assert isinstance(payload, bytes)
    assert header(payload).delivery_count == again["failures"]


def test_it_is_deferred_by_token_with_annotations(net: Network, asker: Asker) -> None:
    locked_queue(net, b"a", policy=POLICY)
    (delivery,) = net.connect().receiver("q", credit=1).deliveries
    request = {"tokens": [delivery.tag], "outcome": "deferred", "annotations": {"x-opt-a": 1}}
    assert asker.ask("SETTLE", "queue", "q", request).status == 200
    (message,) = messages(receive(asker, 1))
    payload = message["message"]
    assert isinstance(payload, bytes)
    assert message_annotations(payload)["x-opt-a"] == 1


def test_failures_count_for_the_delivery_limit(net: Network, asker: Asker) -> None:
    policy = QueuePolicy(lock_duration=30_000, deferral=True, delivery_limit=1, dead_letter="dead")
    locked_queue(net, b"a", policy=policy)
    defer(net)
    for _ in range(2):
        messages(receive(asker, 1))
        net.advance(31)
    assert figures(net, "messages", "deferred", "dead-lettered") == [0, 0, 1]


def test_it_survives_a_restart(net: Network) -> None:
    locked_queue(net, b"a", b"b", b"c", policy=POLICY)
    defer(net, 2)
    asker = Asker(net)
    (message,) = messages(receive(asker, 2))
    assert settle(asker, message, "modified", **{"delivery-failed": True}).status == 200
    net.restart()
    with_management(net)
    assert figures(net, "deferred", "available", "messages") == [2, 1, 3]
    receiver = net.connect().receiver("q", credit=10)
    assert receiver.bodies() == [b"c"]
    asker = Asker(net)
    first, second = messages(receive(asker, 1, 2))
    assert (body(first), body(second)) == (b"a", b"b")
    assert (first["failures"], second["failures"]) == (0, 1)
    assert settle(asker, first, "accepted").status == 200
    assert settle(asker, second, "accepted").status == 200
    receiver.settle(Accepted())
    net.connect().sender("q").send(b"d")
    assert net.connect().receiver("q", credit=10).bodies() == []
    assert receiver.bodies() == [b"d"]
    receiver.settle(Accepted())
    net.restart()
    assert net.queue("q").message_count() == 0


def test_it_expires(net: Network) -> None:
    policy = QueuePolicy(lock_duration=5_000, deferral=True, message_ttl=60_000, dead_letter="dead")
    locked_queue(net, b"a", b"b", policy=policy)
    defer(net)
    net.advance(61)
    assert figures(net, "messages", "deferred", "expirations") == [0, 0, 2]
    assert net.queue("dead").available == 2


def test_one_that_expires_while_it_is_locked_leaves_when_the_lock_lapses(
    net: Network, asker: Asker
) -> None:
    policy = QueuePolicy(lock_duration=30_000, deferral=True, message_ttl=20_000)
    locked_queue(net, b"a", policy=policy)
    defer(net)
    messages(receive(asker, 1))
    net.advance(25)
    assert figures(net, "messages") == [1]
    net.advance(10)
    assert figures(net, "messages", "expirations") == [0, 1]


def test_it_counts_for_the_limit_of_the_queue(net: Network, asker: Asker) -> None:
    net.declare("q", QueuePolicy(deferral=True, max_length=2, overflow="drop-head"))
    sender = net.connect().sender("q")
    sender.send(b"a")
    sender.send(b"b")
    defer(net)
    sender.send(b"c")
    # The oldest message is not dropped, because it is deferred.
    assert figures(net, "deferred", "available", "overflowed") == [1, 1, 1]
    assert net.connect().receiver("q", mode="copy", credit=9).bodies() == [b"c"]
    messages(receive(asker, 1, settled=True))
    sender.send(b"d")
    assert figures(net, "available", "overflowed") == [2, 1]


def test_it_is_purged_moved_and_deleted_with_the_queue(net: Network) -> None:
    locked_queue(net, b"a", b"b", b"c", policy=POLICY)
    defer(net, 2)
    queue, other = net.queue("q"), net.declare("other")
    assert finish(queue.move(other, 1)) == (1, None)
    assert net.connect().receiver("other", credit=1).bodies() == [b"a"]
    assert queue.purge().count == 2
    assert figures(net, "messages", "deferred", "bytes") == [0, 0, 0]
    net.connect().sender("q").send(b"d")
    defer(net)
    net.space.remove(queue)
    net.space.remove(other)
    net.run()
    assert net.broker.agenda.held == 0


def test_a_restart_after_a_purge_has_no_deferred_message(net: Network) -> None:
    locked_queue(net, b"a", policy=POLICY)
    defer(net)
    net.queue("q").purge()
    net.run()
    net.restart()
    assert figures(net, "messages", "deferred") == [0, 0]
    net.connect().sender("q").send(b"b")
    net.restart()
    assert net.connect().receiver("q", credit=1).bodies() == [b"b"]


def test_deferred_messages_remain_without_the_policy(net: Network, asker: Asker) -> None:
    locked_queue(net, b"a", policy=POLICY)
    defer(net)
    net.queue("q").change_policy(QueuePolicy(lock_duration=30_000))
    (message,) = messages(receive(asker, 1))
    assert settle(asker, message, "released").status == 200
    assert figures(net, "deferred", "available") == [1, 0]


def test_priorities_and_other_consumers_go_on(net: Network, asker: Asker) -> None:
    locked_queue(net, policy=POLICY)
    sender = net.connect().sender("q")
    for priority in (9, 4, 4, 0):
        sender.send_sections(Header(priority=priority))
    first = net.connect().receiver("q", credit=1)
    first.settle(DEFER)
    other = net.connect().receiver("q", credit=1)
    other.settle(Released())
    assert figures(net, "deferred", "available") == [1, 3]
    (message,) = messages(receive(asker, 1))
    assert message["priority"] == 9
    assert settle(asker, message, "accepted").status == 200
    last = net.connect().receiver("q", credit=10)
    assert len(last.deliveries) == 3
    last.settle(Accepted())
    assert figures(net, "messages") == [0]
