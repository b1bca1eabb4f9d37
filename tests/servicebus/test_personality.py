"""The personality on the wire: paths, annotations, outcomes, dead letters, sessions and errors."""

from __future__ import annotations

import re
from dataclasses import replace
from uuid import UUID

import pytest

from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_codec.scalars import Symbol, Timestamp, UInt
from ferrymq_servicebus.addresses import EntityPaths
from ferrymq_types.filters import SelectorFilter
from ferrymq_types.messaging import (
    Accepted,
    ApplicationProperties,
    Data,
    Header,
    MessageAnnotations,
    Modified,
    Properties,
    Rejected,
    Released,
    Source,
)
from ferrymq_types.transport import Error, SenderSettleMode
from ferrymq_types.unions import Outcome
from tests.broker.harness import (
    Network,
    encode,
    header,
    message_annotations,
)
from tests.servicebus.kit import application, first, network_of, properties, queue_of
from tests.servicebus.management.requests import EntityClient, encoded, uuids

DEAD_LETTER = "com.microsoft:dead-letter"
SESSION = "com.microsoft:session-filter"
TICKS = 621_355_968_000_000_000

SETTINGS = {
    "queue": [{"name": "Orders"}, {"name": "sq", "requires-session": True}],
    "topic": [{"name": "News", "subscription": [{"name": "Audit"}]}],
    "hub": [{"name": "Clicks", "partition-count": 2}],
}


@pytest.fixture
def net() -> Network:
    return network_of(**SETTINGS)


# -- paths -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "native"),
    [
        ("orders", "Orders"),
        ("/ORDERS/", "Orders"),
        ("amqps://localhost:1/orders", "Orders"),
        ("sb://localhost:1/orders/$management", "Orders/$management"),
        ("orders/$deadletterqueue", "Orders/$DeadLetterQueue"),
        ("orders/$transfer/$deadletterqueue", "Orders/$Transfer/$DeadLetterQueue"),
        ("orders/$DeadLetterQueue/$management", "Orders/$DeadLetterQueue/$management"),
        ("news/subscriptions/AUDIT", "News::Audit"),
        ("news/Subscriptions/audit/$DeadLetterQueue", "News::Audit/$DeadLetterQueue"),
        ("clicks/consumergroups/$Default/partitions/1", "Clicks::1"),
        ("clicks/ConsumerGroups/$Default", "Clicks"),
        ("clicks/Partitions/0", "Clicks::0"),
        ("a/b/c", "a/b/c"),
        ("$CBS", "$cbs"),
        ("$management", "$management"),
        ("News::Audit", "News::Audit"),
    ],
)
def test_paths(net: Network, path: str, native: str) -> None:
    paths = EntityPaths(net.space)
    assert paths.native(path) == native
    assert paths.native(native) == native
    assert paths.native(paths.named(native)) == native


def test_entities_are_made_on_first_use_with_their_own_settings(net: Network) -> None:
    net.connect().sender("amqps://localhost/New")
    policy = queue_of(net, "New").policy
    assert (policy.lock_duration, policy.deferral, policy.delivery_limit) == (60_000, True, 9)
    assert net.connect().sender("new").attached and net.space.find("new") is None


# -- what is sent ------------------------------------------------------------------------------


def test_a_delivery_has_the_annotations_of_the_service(net: Network) -> None:
    net.connect().sender("orders").send_sections(
        MessageAnnotations({Symbol("x-opt-partition-key"): "k"}), Data(value=b"a")
    )
    (delivery,) = first(net).deliveries
    annotations = message_annotations(delivery.payload)
    now = annotations.pop("x-opt-enqueued-time")
    assert isinstance(now, Timestamp) and now == net.space.agenda.wall
    assert annotations.pop("x-opt-locked-until") == Timestamp(now + 60_000)
    assert annotations == {
        "x-opt-sequence-number": 1,
        "x-opt-enqueue-sequence-number": 1,
        "x-opt-offset": 1,
        "x-opt-message-state": 0,
        "x-opt-partition-key": "k",
    }
    assert len(delivery.tag) == 16 and UUID(bytes_le=delivery.tag)
    assert properties(delivery.payload).message_id


def test_the_header_always_has_the_delivery_count(net: Network) -> None:
    sender = net.connect().sender("orders")
    sender.send_sections(Header(durable=True, priority=7, ttl=UInt(5000)), Data(value=b"a"))
    receiver = first(net)
    assert header(receiver.deliveries[0].payload) == Header(
        durable=True, priority=7, ttl=5000, first_acquirer=False, delivery_count=0
    )
    # The field is there, although it is 0: five fields, the last one of them a uint.
    assert receiver.deliveries[0].payload[:5] == b"\x00\x53\x70\xc0\x0f"
    receiver.settle(Modified(delivery_failed=True))
    assert header(first(net).deliveries[0].payload).delivery_count == 1


def test_the_ttl_alone_says_when_a_message_expires(net: Network) -> None:
    net.connect().sender("orders").send_sections(
        Properties(message_id="m", absolute_expiry_time=Timestamp(1)), Data(value=b"a")
    )
    found = properties(first(net).deliveries[0].payload)
    assert (found.message_id, found.absolute_expiry_time) == ("m", None)


def test_receive_and_delete(net: Network) -> None:
    net.connect().sender("orders").send(b"a")
    receiver = first(net, snd=SenderSettleMode.SETTLED)
    assert receiver.deliveries[0].remote_settled
    assert "x-opt-locked-until" not in message_annotations(receiver.deliveries[0].payload)
    assert queue_of(net, "Orders").message_count() == 0


# -- outcomes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "count"),
    [
        (Modified(delivery_failed=True), 1),
        (Modified(), 1),
        (Rejected(), 1),
        (Rejected(error=Error(condition="amqp:internal-error")), 1),
        (Released(), 1),
    ],
)
def test_a_message_that_comes_back_counts(net: Network, outcome: Outcome, count: int) -> None:
    net.connect().sender("orders").send(b"a")
    first(net).settle(outcome)
    assert header(first(net).deliveries[0].payload).delivery_count == count


def test_what_is_released_while_the_link_is_drained_does_not_count(net: Network) -> None:
    net.connect().sender("orders").send(b"a")
    receiver = net.connect().receiver("orders", credit=5)
    receiver.drain()
    receiver.settle(Released())
    assert header(first(net).deliveries[0].payload).delivery_count == 0


def test_abandoning_and_deferring_with_properties(net: Network) -> None:
    net.connect().sender("orders").send_sections(
        ApplicationProperties({"kept": 1, "changed": 1}), Data(value=b"a")
    )
    first(net).settle(Modified(message_annotations={"changed": 2, "new": "n"}))
    again = first(net)
    assert application(again.deliveries[0].payload) == {"kept": 1, "changed": 2, "new": "n"}
    again.settle(Modified(undeliverable_here=True))
    entries = queue_of(net, "Orders").entries
    assert (entries.available, entries.acquired) == (0, 0)
    assert queue_of(net, "Orders").message_count() == 1


# -- dead letters ------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [Symbol, str])
def test_a_message_is_dead_lettered_with_a_reason(net: Network, key: type[str]) -> None:
    net.connect().sender("orders").send(b"a")
    info: dict[str, object] = {
        key("DeadLetterReason"): "bäd",
        key("DeadLetterErrorDescription"): "no good",
        key("mine"): 5,
    }
    first(net).settle(Rejected(error=Error(condition=DEAD_LETTER, info=info)))
    receiver = first(net, "orders/$DeadLetterQueue")
    payload = receiver.deliveries[0].payload
    assert application(payload) == {
        "DeadLetterReason": "bäd",
        "DeadLetterErrorDescription": "no good",
        "mine": 5,
    }
    assert message_annotations(payload)["x-opt-deadletter-source"] == "Orders"
    assert receiver.bodies() == [b"a"]
    receiver.settle(Accepted())
    assert queue_of(net, "Orders/$DeadLetterQueue").message_count() == 0


def test_a_scheduled_message_of_a_topic_has_one_sequence_number(net: Network) -> None:
    due = net.wall + 1000
    client = EntityClient(net, "News")
    client.body("schedule-message", {"messages": [{"message": encoded(b"a", int(due))}]})
    net.advance(2)
    payload = first(net, "news/subscriptions/audit").deliveries[0].payload
    assert payload.count(b"x-opt-sequence-number") == 1
    annotations = message_annotations(payload)
    assert annotations["x-opt-sequence-number"] == 1
    assert annotations["x-opt-enqueued-time"] == Timestamp(due)


def test_a_request_abandons_with_properties(net: Network) -> None:
    net.connect().sender("orders").send(b"a")
    tokens = uuids(first(net).take()[0].tag)
    client = EntityClient(net, "Orders")
    asked = {"disposition-status": "abandoned", "lock-tokens": tokens}
    client.body("update-disposition", {**asked, "properties-to-modify": {"new": "n"}})
    assert application(first(net).deliveries[0].payload) == {"new": "n"}


def test_a_dead_letter_is_peeked_with_its_reason(net: Network) -> None:
    net.connect().sender("orders").send(b"a")
    tokens = uuids(first(net).take()[0].tag)
    asked = {"disposition-status": "suspended", "lock-tokens": tokens, "deadletter-reason": "bad"}
    EntityClient(net, "Orders").body("update-disposition", asked)
    client = EntityClient(net, "Orders/$DeadLetterQueue")
    found = client.body("peek-message", {"from-sequence-number": 0, "message-count": 5})
    messages = found["messages"]
    assert isinstance(messages, list) and len(messages) == 1
    assert application(messages[0]["message"]) == {"DeadLetterReason": "bad"}


def test_too_many_deliveries(net: Network) -> None:
    net.connect().sender("orders").send(b"a")
    for _ in range(10):
        first(net).settle(Modified(delivery_failed=True))
    payload = first(net, "orders/$deadletterqueue").deliveries[0].payload
    assert application(payload)["DeadLetterReason"] == "MaxDeliveryCountExceeded"


# -- sessions, topics --------------------------------------------------------------------------


@pytest.mark.parametrize("asked", ["s", None])
def test_a_session_is_named_or_the_next_one(net: Network, asked: str | None) -> None:
    net.connect().sender("SQ").send_sections(Properties(group_id="s"), Data(value=b"a"))
    receiver = first(net, "sq", source=Source(address="sq", filter={SESSION: asked}))
    assert receiver.remote_source.filter == {SESSION: "s"}
    assert receiver.remote_source.address == "sq"
    attach = receiver.link.remote_attach
    assert attach is not None and attach.properties is not None
    until = attach.properties["com.microsoft:locked-until-utc"]
    assert isinstance(until, int) and (until - TICKS) % 10_000 == 0 and until > TICKS
    assert len(receiver.deliveries[0].tag) == 16


def test_no_session_is_free_in_time(net: Network) -> None:
    receiver = net.connect().receiver(
        None,
        source=Source(address="sq", filter={SESSION: None}),
        properties={"com.microsoft:timeout": UInt(1000)},
    )
    assert not receiver.attached
    net.advance(2)
    assert receiver.error is not None and receiver.error.condition == "com.microsoft:timeout"


def test_a_session_with_an_owner(net: Network) -> None:
    source = Source(address="sq", filter={SESSION: "s"})
    assert net.connect().receiver(None, source=source).error is None
    error = net.connect().receiver(None, source=source).error
    assert error is not None and error.condition == "com.microsoft:session-cannot-be-locked"


def test_a_session_where_there_are_none(net: Network) -> None:
    error = (
        net.connect().receiver(None, source=Source(address="orders", filter={SESSION: "s"})).error
    )
    assert error is not None and error.condition == "amqp:not-allowed"
    net.connect().sender("orders").send(b"a")
    assert first(net).bodies() == [b"a"]


def test_a_subscription(net: Network) -> None:
    net.connect().sender("news").send(b"a")
    receiver = first(net, "news/subscriptions/audit")
    assert receiver.remote_source.address == "news/subscriptions/audit"
    receiver.settle(Rejected(error=Error(condition=DEAD_LETTER)))
    assert first(net, "news/Subscriptions/audit/$DeadLetterQueue").bodies() == [b"a"]


# -- event hubs --------------------------------------------------------------------------------


@pytest.mark.parametrize("annotations", [None, {"own": 1}, {"own": 1, "x-opt-offset": 5}])
def test_an_event_has_its_offset_as_text(
    net: Network, annotations: dict[str | int, object] | None
) -> None:
    sections = [] if annotations is None else [MessageAnnotations(dict(annotations))]
    sender = net.connect().sender("clicks/Partitions/1")
    for _ in range(12):
        sender.send_sections(*sections, Data(value=b"a"))
    address = "Clicks/ConsumerGroups/$Default/Partitions/1"
    start = SelectorFilter("amqp.annotation.x-opt-offset > '9'")
    receiver = net.connect().receiver(
        None, credit=5, source=Source(address=address, filter={"start": start})
    )
    found = [message_annotations(one.payload) for one in receiver.deliveries]
    assert [(one["x-opt-offset"], one["x-opt-sequence-number"]) for one in found] == [
        ("10", 10),
        ("11", 11),
    ]
    assert all(one.get("own") == (None if annotations is None else 1) for one in found)
    assert all(isinstance(one["x-opt-enqueued-time"], Timestamp) for one in found)


def test_a_reader_with_a_higher_epoch_takes_the_partition(net: Network) -> None:
    address = "clicks/ConsumerGroups/$Default/Partitions/0"
    first_one = net.connect().receiver(address, properties={"com.microsoft:epoch": 1})
    other = "clicks/ConsumerGroups/other/Partitions/0"
    beside = net.connect().receiver(other, properties={"com.microsoft:epoch": 1})
    net.connect().receiver(address, properties={"com.microsoft:epoch": 2})
    assert first_one.error is not None and first_one.error.condition == "amqp:link:stolen"
    assert beside.error is None
    lower = net.connect().receiver(address, properties={"com.microsoft:epoch": 1})
    assert lower.error is not None and lower.error.condition == "amqp:link:stolen"


# -- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("missing", "missing"),
        ("news/Subscriptions/missing", "News/Subscriptions/missing"),
        ("missing/Subscriptions/s", "missing"),
        ("orders/Subscriptions/s", "Orders/Subscriptions/s"),
        ("clicks/Partitions/7", "Clicks/Partitions/7"),
    ],
)
def test_a_missing_entity(net: Network, path: str, told: str) -> None:
    net.space.templates.clear()
    error = net.connect().receiver(path).error
    assert error is not None and error.condition == "amqp:not-found"
    description = error.description or ""
    assert description.startswith(f"The messaging entity '{told}' could not be found")
    assert "::" not in description


def test_an_error_names_the_path_of_the_client(net: Network) -> None:
    error = net.connect().sender("news/Subscriptions/audit").error
    assert error is not None and "::" not in (error.description or "")
    policy = queue_of(net, "Orders").policy
    topic = net.space.find("News")
    assert isinstance(topic, Topic)
    (subscription,) = topic.subscriptions()
    topic.change_subscription(subscription, replace(policy, receive_disabled=True))
    error = net.connect().receiver("news/subscriptions/audit").error
    assert error is not None and "'News/Subscriptions/Audit'" in (error.description or "")


def test_an_internal_error_has_a_tracking_id_that_is_in_the_log(
    net: Network, caplog: pytest.LogCaptureFixture
) -> None:
    personality = net.space.personality
    assert personality is not None
    error = personality.error("amqp:internal-error", "it failed", None)
    found = re.fullmatch("it failed TrackingId:([0-9a-f]{32})", error.description or "")
    assert found is not None and found[1] in caplog.text


@pytest.mark.parametrize("path", ["news", "sb://localhost/NEWS"])
def test_a_topic_is_not_received_from(net: Network, path: str) -> None:
    error = net.connect().receiver(path).error
    assert error is not None and error.condition == "amqp:not-allowed"
    topic = net.space.find("News")
    assert isinstance(topic, Topic)
    assert [one.name for one in topic.subscriptions()] == ["Audit"]


def test_an_entity_with_sessions_needs_one(net: Network) -> None:
    error = net.connect().receiver("sq").error
    assert error is not None and error.condition == "amqp:not-allowed"


def test_a_lost_lock(net: Network) -> None:
    net.connect().sender("orders").send(b"a")
    receiver = first(net)
    (delivery,) = receiver.take()
    net.advance(61)
    delivery.update(Accepted())
    net.run()
    state = delivery.remote_state
    assert isinstance(state, Rejected) and state.error is not None
    assert state.error.condition == "com.microsoft:message-lock-lost"


def test_messages_in_a_foreign_format_are_left_alone(net: Network) -> None:
    net.connect().sender("orders").send_encoded(b"opaque", message_format=0x100)
    assert first(net).deliveries[0].payload == b"opaque"


def test_everyone_may_put_a_token_where_none_is_checked(net: Network) -> None:
    client = net.connect()
    receiver = client.receiver("$cbs", credit=1)
    client.sender("$cbs").send_encoded(
        encode(Properties(message_id=1), ApplicationProperties({"operation": "put-token"}))
    )
    assert application(receiver.deliveries[0].payload)["status-code"] == 202
