"""Dead letters: why they died, and putting back or dropping some of them."""

from __future__ import annotations

import pytest

from ferrymq_broker.values.policy import QueuePolicy, TopicPolicy
from ferrymq_codec.scalars import Timestamp
from ferrymq_types.messaging import (
    Accepted,
    ApplicationProperties,
    Data,
    Header,
    Rejected,
    Source,
)
from ferrymq_types.transport import Error
from tests.broker.harness import Network, header, message_annotations, text
from tests.broker.management.asker import Answer, Asker
from tests.broker.management.rules import guard, rule, user
from tests.broker.stores import ManualStore


def peeked(asker: Asker, address: str) -> list[tuple[bytes, dict[str, object]]]:
    answer = asker.ask("PEEK", "queue", address, {"count": 100})
    messages = answer.map()["messages"]
    assert isinstance(messages, list)
    return [(text(each["message"]), each) for each in messages]


def bodies(asker: Asker, address: str) -> list[bytes]:
    return [body for body, _ in peeked(asker, address)]


def die(net: Network, address: str, *messages: bytes) -> None:
    """Send messages that a consumer rejects."""
    client = net.connect()
    client.sender(address).send(*messages)
    receiver = client.receiver(address, credit=100)
    error = Error(condition="shop:broken", description="cannot be parsed")
    receiver.settle(Rejected(error=error))
    client.close()


@pytest.fixture
def graves(net: Network) -> Network:
    """Two queues whose dead letters go to a third: a, b, c from `q`, and x, y from `r`."""
    net.declare("dead")
    net.declare("q", QueuePolicy(dead_letter="dead"))
    net.declare("r", QueuePolicy(dead_letter="dead", message_ttl=1000))
    die(net, "q", b"a", b"b", b"c")
    net.connect().sender("r").send(b"x", b"y")
    net.advance(2)
    return net


def counted(answer: Answer) -> object:
    assert answer.status == 200, answer.description
    return answer.map()["count"]


def test_peek_tells_why_a_message_died(graves: Network, asker: Asker) -> None:
    found = dict(peeked(asker, "dead"))
    death = found[b"a"]["dead-letter"]
    assert isinstance(death, dict)
    assert type(death.pop("time")) is Timestamp
    assert death == {
        "reason": "rejected",
        "source": "q",
        "count": 1,
        "condition": "shop:broken",
        "description": "cannot be parsed",
        "first-reason": "rejected",
        "first-source": "q",
    }
    death = found[b"x"]["dead-letter"]
    assert isinstance(death, dict) and (death["reason"], death["source"]) == ("expired", "r")
    graves.connect().sender("other").send(b"alive")
    assert "dead-letter" not in peeked(asker, "other")[0][1]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({}, b"abcxy"),
        ({"reason": "rejected"}, b"abc"),
        ({"source": "r"}, b"xy"),
        ({"reason": "rejected", "source": "r"}, b""),
        ({"sequences": [2, 5, 77]}, b"by"),
        ({"selector": "m.x-opt-deadletter-description LIKE '%parsed'"}, b"abc"),
        ({"selector": "m.x-opt-deadletter-reason = 'expired'", "count": 1}, b"x"),
    ],
)
def test_dead_letters_go_back_to_the_queue_in_which_they_died(
    graves: Network, asker: Asker, chosen: dict[str, object], expected: bytes
) -> None:
    dry = asker.ask("REQUEUE", "queue", "dead", {**chosen, "dry-run": True})
    assert counted(dry) == len(expected)
    assert len(bodies(asker, "dead")) == 5
    assert counted(asker.ask("REQUEUE", "queue", "dead", chosen)) == len(expected)
    back = b"".join(bodies(asker, "q") + bodies(asker, "r"))
    assert back == expected
    assert b"".join(bodies(asker, "dead")) == bytes(c for c in b"abcxy" if c not in expected)


def test_a_dead_letter_may_die_again_where_it_died(graves: Network, asker: Asker) -> None:
    """Its path begins anew: an expired message would be in a circle otherwise."""
    asker.ask("REQUEUE", "queue", "dead", {"source": "r"})
    graves.advance(2)
    found = dict(peeked(asker, "dead"))
    death = found[b"x"]["dead-letter"]
    assert isinstance(death, dict) and death["count"] == 2
    assert graves.queue("r").message_count() == 0


def test_what_a_requeued_message_still_tells(graves: Network, asker: Asker) -> None:
    asker.ask("REQUEUE", "queue", "dead", {"sequences": [1]})
    (delivery,) = graves.connect().receiver("q", credit=5).deliveries
    assert header(delivery.payload).delivery_count == 1
    assert message_annotations(delivery.payload)["x-opt-deadletter-reason"] == "rejected"


def test_to_another_queue(graves: Network, asker: Asker) -> None:
    graves.declare("repair")
    assert counted(asker.ask("REQUEUE", "queue", "dead", {"target": "repair"})) == 5
    assert bodies(asker, "repair") == [b"a", b"b", b"c", b"x", b"y"]
    answer = asker.ask("REQUEUE", "queue", "dead", {"target": "none"})
    assert (answer.status, answer.description) == (404, "target: there is no node 'none'")
    assert asker.ask("REQUEUE", "queue", "dead", {"target": "dead"}).status == 400


def test_of_a_subscription(net: Network, asker: Asker) -> None:
    net.declare("dead")
    net.space.create("news", TopicPolicy(subscription=QueuePolicy(dead_letter="dead")))
    asker.ask("CREATE", "subscription", "news::audit")
    asker.ask("CREATE", "subscription", "news::other")
    net.connect().sender("news").send(b"a")
    receiver = net.connect().receiver("news::audit", credit=1)
    receiver.settle(Rejected())
    assert counted(asker.ask("REQUEUE", "queue", "dead", {"source": "news::audit"})) == 1
    assert asker.ask("READ", "subscription", "news::audit").map()["available"] == 1
    # The other subscription does not get it twice.
    assert asker.ask("READ", "subscription", "news::other").map()["available"] == 1


def test_a_queue_that_refuses_does_not_hold_up_others(graves: Network, asker: Asker) -> None:
    graves.queue("q").change_policy(QueuePolicy(max_length=1, overflow="reject"))
    answer = asker.ask("REQUEUE", "queue", "dead")
    assert counted(answer) == 3
    assert str(answer.map()["refused"]).startswith("'q': the queue 'q' has no room")
    assert bodies(asker, "dead") == [b"b", b"c"]
    graves.space.remove(graves.queue("q"))
    graves.finish()
    answer = asker.ask("REQUEUE", "queue", "dead")
    assert (answer.status, answer.description) == (404, "'q': it does not exist any more")


def test_selected_messages_are_dropped(graves: Network, asker: Asker) -> None:
    assert counted(asker.ask("REMOVE", "queue", "dead", {"reason": "expired"})) == 2
    holder = graves.connect().receiver("dead", credit=1)
    assert counted(asker.ask("REMOVE", "queue", "dead", {"sequences": [1, 2]})) == 1
    assert bodies(asker, "dead") == [b"a", b"c"]
    holder.settle(Accepted())
    answer = asker.ask("REMOVE", "queue", "dead", {"count": 1})
    assert answer.status == 400 and "PURGE drops all" in answer.description
    assert asker.ask("REMOVE", "queue", "dead", {"sequences": "1"}).status == 400
    assert asker.ask("REMOVE", "queue", "dead", {"selector": "a ="}).status == 400


def test_messages_of_all_priorities_are_chosen(net: Network, asker: Asker) -> None:
    net.declare("q")
    sender = net.connect().sender("q")
    for priority in range(10):
        sender.send_sections(
            Header(priority=priority),
            ApplicationProperties({"even": priority % 2 == 0}),
            Data(b"%d" % priority),
        )
    assert counted(asker.ask("REMOVE", "queue", "q", {"selector": "even = TRUE"})) == 5
    assert bodies(asker, "q") == [b"9", b"7", b"5", b"3", b"1"]


def test_long_work_is_done_in_slices(net: Network, asker: Asker) -> None:
    """Messages that come meanwhile are left out, also those that come back at once."""
    net.declare("dead")
    net.declare("q", QueuePolicy(dead_letter="dead", max_length=10, overflow="dead-letter"))
    net.connect().sender("q").send(*[b"%d" % number for number in range(310)])
    assert net.queue("dead").available == 300
    assert counted(asker.ask("REQUEUE", "queue", "dead", {"reason": "max-length"})) == 300
    assert (net.queue("q").available, net.queue("dead").available) == (10, 300)


def test_after_a_crash_a_message_is_in_one_of_the_queues() -> None:
    from ferrymq_broker.management.setup import install

    net = Network(store=ManualStore())
    install(net.space, net.broker)
    asker = Asker(net)
    net.declare("dead")
    net.declare("q", QueuePolicy(dead_letter="dead"))
    client = net.connect()
    sender = client.sender("q")
    for number in range(3):
        sender.send_sections(Header(durable=True), Data(b"%d" % number))
    receiver = client.receiver("q", credit=3)
    receiver.settle(Rejected())
    client.close()
    assert counted(asker.ask("REQUEUE", "queue", "dead", {"sequences": [2]})) == 1
    assert counted(asker.ask("REMOVE", "queue", "dead", {"sequences": [3]})) == 1
    net.restart()
    install(net.space, net.broker)
    asker = Asker(net)
    assert (bodies(asker, "dead"), bodies(asker, "q")) == ([b"0"], [b"1"])


def test_who_may(graves: Network) -> None:
    guard(
        graves,
        rule("user:reader", "dead-letter receive browse", "dead"),
        rule("user:fixer", "dead-letter", "dead"),
        rule("user:fixer", "send", "q"),
        rule("user:ann", "receive browse", "q"),
    )
    reader, fixer, ann = (user(graves, name) for name in ("reader", "fixer", "ann"))
    for operation in ("REQUEUE", "REMOVE"):
        assert ann.ask(operation, "queue", "dead", {"reason": "expired"}).status == 403
    # Without the right to send to `r`, its dead letters stay.
    answer = fixer.ask("REQUEUE", "queue", "dead")
    assert counted(answer) == 3 and "send at 'r'" in str(answer.map()["refused"])
    assert reader.ask("REQUEUE", "queue", "dead").status == 403
    assert reader.ask("REQUEUE", "queue", "dead", {"target": "q"}).status == 403
    assert counted(reader.ask("REMOVE", "queue", "dead", {"source": "r"})) == 2


def test_browsing_dead_letters_stays_possible(graves: Network, asker: Asker) -> None:
    """The cursor of the walk is released, however it ends."""
    asker.ask("REQUEUE", "queue", "dead", {"count": 1})
    assert graves.queue("dead").entries.purges == 0
    source = Source(address="dead", distribution_mode="copy")
    assert len(graves.connect().receiver(None, source=source, credit=9).deliveries) == 4
