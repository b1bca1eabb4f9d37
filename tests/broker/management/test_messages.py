"""Messages in a queue are looked at, moved and dropped from outside."""

from __future__ import annotations

import pytest

from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_codec.scalars import Timestamp, ULong
from ferrymq_types.messaging import Accepted, Data, Header, MessageAnnotations, Released
from tests.broker.harness import Network, header, message_annotations, text
from tests.broker.management.asker import Answer, Asker


def shown(answer: Answer) -> list[dict[str, object]]:
    assert answer.status == 200, answer.description
    messages = answer.map()["messages"]
    assert isinstance(messages, list)
    return messages


def bodies(answer: Answer) -> list[bytes]:
    payloads = [message["message"] for message in shown(answer)]
    return [text(payload) for payload in payloads if isinstance(payload, bytes)]


def fill(net: Network, address: str, *messages: bytes) -> None:
    net.connect().sender(address).send(*messages)


# -- peek ----------------------------------------------------------------------------------


def test_messages_are_shown_and_stay_as_they_are(net: Network, asker: Asker) -> None:
    net.declare("q")
    fill(net, "q", b"a", b"b", b"c")
    assert bodies(asker.ask("PEEK", "queue", "q")) == [b"a", b"b", b"c"]
    assert bodies(asker.ask("PEEK", "queue", "q", {"count": 2})) == [b"a", b"b"]
    receiver = net.connect().receiver("q", credit=10)
    assert receiver.bodies() == [b"a", b"b", b"c"]
    assert header(receiver.deliveries[0].payload).delivery_count == 0


def test_held_messages_are_shown_with_what_has_become_of_them(net: Network, asker: Asker) -> None:
    net.declare("q", QueuePolicy(message_ttl=60_000))
    fill(net, "q", b"a", b"b")
    client = net.connect()
    receiver = client.receiver("q", credit=1)
    client.lose()
    assert receiver.bodies() == [b"a"]
    receiver = net.connect().receiver("q", credit=1)
    first, second = shown(asker.ask("PEEK", "queue", "q"))
    assert (first["state"], second["state"]) == ("acquired", "available")
    assert (first["failures"], second["failures"]) == (1, 0)
    assert (first["sequence"], second["sequence"]) == (1, 2)
    assert first["expires"] == net.wall + 60_000 and type(first["expires"]) is Timestamp
    assert isinstance(first["message"], bytes)
    assert header(first["message"]).delivery_count == 1
    receiver.settle(Released())
    assert shown(asker.ask("PEEK", "queue", "q"))[0]["state"] == "available"


def test_more_is_shown_from_a_sequence_on(net: Network, asker: Asker) -> None:
    net.declare("q")
    fill(net, "q", *[str(number).encode() for number in range(25)])
    seen: list[bytes] = []
    start = 0
    while messages := shown(asker.ask("PEEK", "queue", "q", {"from-sequence": start})):
        assert len(messages) <= 10
        for message in messages:
            assert isinstance(message["message"], bytes)
            assert isinstance(message["sequence"], int)
            seen.append(text(message["message"]))
            start = message["sequence"] + 1
    assert seen == [str(number).encode() for number in range(25)]


def test_the_more_urgent_is_shown_first(net: Network, asker: Asker) -> None:
    net.declare("q")
    sender = net.connect().sender("q")
    for priority in (1, 9, 4):
        sender.send_sections(Header(priority=priority), Data(str(priority).encode()))
    assert bodies(asker.ask("PEEK", "queue", "q")) == [b"9", b"4", b"1"]


def test_an_answer_shows_a_mebibyte_or_one_message(net: Network, asker: Asker) -> None:
    net.declare("q")
    fill(net, "q", b"x" * 2_000_000, b"y" * 600_000, b"z" * 600_000)
    assert len(bodies(asker.ask("PEEK", "queue", "q"))) == 1
    assert len(bodies(asker.ask("PEEK", "queue", "q", {"from-sequence": 2}))) == 1


# -- purge ---------------------------------------------------------------------------------


def test_a_purge_leaves_what_consumers_hold(net: Network, asker: Asker) -> None:
    net.declare("q")
    fill(net, "q", b"a", b"b", b"c")
    receiver = net.connect().receiver("q", credit=1)
    assert asker.ask("PURGE", "queue", "q").map() == {"count": 2}
    assert asker.ask("PURGE", "queue", "q").map() == {"count": 0}
    receiver.settle(Accepted())
    assert net.queue("q").message_count() == 0
    assert asker.ask("PURGE", "queue", "none").status == 404


# -- move ----------------------------------------------------------------------------------


def test_messages_are_moved_in_order(net: Network, asker: Asker) -> None:
    net.declare("from")
    net.declare("to")
    fill(net, "from", b"a", b"b", b"c", b"d")
    holder = net.connect().receiver("from", credit=1)
    answer = asker.ask("MOVE", "queue", "from", {"target": "to", "count": 2})
    assert answer.map() == {"count": 2}
    assert bodies(asker.ask("PEEK", "queue", "to")) == [b"b", b"c"]
    assert asker.ask("MOVE", "queue", "from", {"target": "to"}).map() == {"count": 1}
    receiver = net.connect().receiver("to", credit=10)
    assert receiver.bodies() == [b"b", b"c", b"d"]
    holder.settle(Accepted())
    assert net.queue("from").message_count() == 0


def test_consumers_of_the_target_are_served_at_once(net: Network, asker: Asker) -> None:
    net.declare("from")
    net.declare("to")
    fill(net, "from", b"a")
    receiver = net.connect().receiver("to", credit=10)
    asker.ask("MOVE", "queue", "from", {"target": "to"})
    assert receiver.bodies() == [b"a"]


def test_what_the_target_does_not_take_stays(net: Network, asker: Asker) -> None:
    net.declare("from")
    net.declare("to", QueuePolicy(max_length=2))
    fill(net, "from", b"a", b"b", b"c")
    answer = asker.ask("MOVE", "queue", "from", {"target": "to"})
    assert answer.status == 200
    assert answer.map()["count"] == 2
    assert "refused" in answer.map()
    assert bodies(asker.ask("PEEK", "queue", "from")) == [b"c"]
    again = asker.ask("MOVE", "queue", "from", {"target": "to"})
    assert again.status == 507
    assert "'to' refused" in again.description
    assert bodies(asker.ask("PEEK", "queue", "from")) == [b"c"]


def test_a_target_without_bindings_takes_nothing(net: Network, asker: Asker) -> None:
    net.declare("from")
    fill(net, "from", b"a")
    asker.ask("CREATE", "exchange", "x")
    assert asker.ask("MOVE", "queue", "from", {"target": "x"}).status == 409
    asker.ask("CREATE", "topic", "t")
    asker.ask("CREATE", "stream", "s", {"partitions": 2})
    assert asker.ask("MOVE", "queue", "from", {"target": "s::1"}).map() == {"count": 1}
    assert len(shown(asker.ask("PEEK", "stream", "s", {"partition": 1}))) == 1


def test_the_time_of_a_moved_message_counts_on(net: Network, asker: Asker) -> None:
    for name in ("q", "other"):
        net.declare(name)
    sender = net.connect().sender("q")
    sender.send_sections(Header(ttl=5000), Data(value=b"a"))
    sender.send_sections(
        Header(ttl=9000),
        MessageAnnotations(value={"x-opt-delivery-delay": 1000, "x-opt-kept": 1}),
        Data(value=b"b"),
    )
    net.advance(4)
    assert asker.ask("MOVE", "queue", "q", {"target": "other"}).map() == {"count": 2}
    assert net.queue("other").available == 2
    net.advance(1.5)
    (left,) = net.connect().receiver("other", credit=9).take()
    assert text(left.payload) == b"b" and header(left.payload).ttl == 4500
    assert message_annotations(left.payload) == {"x-opt-kept": 1}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"target": 5}, 400),
        ({"target": "from"}, 400),
        ({"target": "alias"}, 400),
        ({"target": "nowhere"}, 404),
        ({"target": "nowhere::part"}, 404),
        ({"target": "$management"}, 409),
        ({"target": "to", "count": 0}, 400),
        ({"target": "to", "count": "two"}, 400),
        ({"to": "to"}, 400),
    ],
)
def test_a_move_that_makes_no_sense_moves_nothing(
    net: Network, asker: Asker, body: dict[str, object], status: int
) -> None:
    net.declare("from")
    net.declare("to")
    net.space.aliases["alias"] = "from"
    fill(net, "from", b"a")
    assert asker.ask("MOVE", "queue", "from", body).status == status
    assert net.queue("from").message_count() == 1
    assert "nowhere" not in net.space.nodes


# -- messages to come ----------------------------------------------------------------------


def test_scheduled_messages_are_listed_and_cancelled(net: Network, asker: Asker) -> None:
    net.declare("q")
    sender = net.connect().sender("q")
    for body, delay in ((b"later", 60_000), (b"soon", 5_000), (b"never", 30_000)):
        sender.send_sections(MessageAnnotations({"x-opt-delivery-delay": delay}), Data(body))
    listed = asker.ask("PEEK-SCHEDULED", "queue", "q")
    assert bodies(listed) == [b"soon", b"never", b"later"]
    assert [message["due"] for message in shown(listed)] == [
        net.wall + delay for delay in (5_000, 30_000, 60_000)
    ]
    assert bodies(asker.ask("PEEK-SCHEDULED", "queue", "q", {"count": 1})) == [b"soon"]
    assert asker.ask("PURGE", "queue", "q").map() == {"count": 0}
    sequence = shown(listed)[1]["sequence"]
    cancel = {"sequences": [sequence, 999]}
    assert asker.ask("CANCEL-SCHEDULED", "queue", "q", cancel).map() == {"count": 1}
    assert asker.ask("CANCEL-SCHEDULED", "queue", "q", cancel).map() == {"count": 0}
    assert asker.ask("READ", "queue", "q").map()["scheduled"] == 2
    net.advance(120)
    assert bodies(asker.ask("PEEK", "queue", "q")) == [b"soon", b"later"]


@pytest.mark.parametrize("body", [{}, {"sequences": []}, {"sequences": 1}, {"sequences": ["1"]}])
def test_a_cancellation_of_nothing(net: Network, asker: Asker, body: dict[str, object]) -> None:
    net.declare("q")
    answer = asker.ask("CANCEL-SCHEDULED", "queue", "q", body)
    assert answer.status == 400
    assert "sequences" in answer.description


# -- settings ------------------------------------------------------------------------------


def test_a_changed_setting_holds_at_once(net: Network, asker: Asker) -> None:
    net.declare("q", QueuePolicy(max_length=1, delivery_limit=3))
    sender = net.connect().sender("q")
    first, second = sender.send(b"a")[0], sender.send(b"b")[0]
    assert isinstance(first.remote_state, Accepted)
    assert not isinstance(second.remote_state, Accepted)
    changed = asker.ask("UPDATE", "queue", "q", {"max-length": 2})
    assert (changed.map()["max-length"], changed.map()["delivery-limit"]) == (2, 3)
    assert isinstance(sender.send(b"c")[0].remote_state, Accepted)
    wrong = asker.ask("UPDATE", "queue", "q", {"max-length": 5, "overflow": "dead-letter"})
    assert wrong.status == 400
    assert net.queue("q").policy == QueuePolicy(max_length=2, delivery_limit=3)


@pytest.mark.parametrize("number", [ULong(2**63), ULong(2**64 - 1), "9" * 20, "9" * 5000])
def test_a_number_beyond_all_numbers_is_refused(net: Network, asker: Asker, number: object) -> None:
    net.declare("q")
    for argument in ("from-sequence", "count"):
        assert asker.ask("PEEK", "queue", "q", {argument: number}).status == 400
    assert asker.ask("MOVE", "queue", "q", {"target": "q", "count": number}).status == 400


def test_no_scheduled_message_has_a_number_beyond_all_numbers(net: Network, asker: Asker) -> None:
    net.declare("q")
    numbers = [ULong(2**64 - 1), ULong(2**63), -(2**63)]
    answer = asker.ask("CANCEL-SCHEDULED", "queue", "q", {"sequences": numbers})
    assert (answer.status, answer.map()) == (200, {"count": 0})
