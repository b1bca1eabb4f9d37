"""The filter of a link is that of its subscription: what does not pass is not kept."""

from __future__ import annotations

from ferrymq_broker.connections.attach_properties import REQUIRE_FILTERS
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_codec.scalars import Described
from ferrymq_types.messaging import (
    ApplicationProperties,
    Data,
    Source,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from tests.broker.harness import Client, Network, Receiver, Sender

RED = Described("apache.org:selector-filter:string", "colour = 'red'")
BLUE = Described("apache.org:selector-filter:string", "colour = 'blue'")
NO_LOCAL = Described("apache.org:no-local-filter:list", [])


def subscribe(
    client: Client,
    filter: Described | None,
    *,
    name: str | None = None,
    durable: bool = False,
    shared: bool = False,
) -> Receiver:
    source = Source(
        address="news",
        filter=None if filter is None else {"it": filter},
        durable=TerminusDurability.UNSETTLED_STATE if durable else TerminusDurability.NONE,
        expiry_policy=TerminusExpiryPolicy.NEVER if durable else TerminusExpiryPolicy.LINK_DETACH,
        capabilities=["shared", "global"] if shared else None,
    )
    return client.receiver("news", source=source, name=name, credit=100)


def send(sender: Sender, *colours: str) -> None:
    for colour in colours:
        sender.send_sections(
            ApplicationProperties(value={"colour": colour}), Data(value=colour.encode())
        )


def test_what_does_not_pass_is_not_kept(net: Network, topic: Topic) -> None:
    client = net.connect()
    red = subscribe(client, RED)
    blue = subscribe(client, BLUE)
    everything = subscribe(client, None)
    send(client.sender("news"), "red", "blue", "green")
    assert red.bodies() == [b"red"]
    assert blue.bodies() == [b"blue"]
    assert everything.bodies() == [b"red", b"blue", b"green"]
    assert [s.queue.message_count() for s in topic.subscriptions()] == [1, 1, 3]
    assert red.remote_source.filter == {"it": RED}


def test_equal_filters_are_asked_once_for_each_message(net: Network, topic: Topic) -> None:
    client = net.connect()
    readers = [subscribe(client, RED) for _ in range(20)]
    others = [subscribe(client, None) for _ in range(5)]
    assert topic.describe()["filters"] == 1
    blue = subscribe(client, BLUE)
    assert topic.describe()["filters"] == 2
    sender = client.sender("news")
    send(sender, "red", "blue")
    assert all(reader.bodies() == [b"red"] for reader in readers)
    assert all(reader.bodies() == [b"red", b"blue"] for reader in others)
    # Whoever leaves, in whatever order: the others of the group go on.
    for reader in readers[:1] + readers[5:10] + readers[-1:] + others + [blue]:
        reader.close()
    assert topic.describe()["filters"] == 1
    send(sender, "red")
    left = readers[1:5] + readers[10:-1]
    assert len(topic.subscriptions()) == len(left) == 13
    assert all(reader.bodies() == [b"red", b"red"] for reader in left)
    for reader in left:
        reader.close()
    assert topic.describe()["filters"] == 0


def test_a_durable_one_with_another_filter_is_another(net: Network, topic: Topic) -> None:
    client = net.connect(container_id="reader")
    sender = net.connect().sender("news")
    subscribe(client, RED, name="mine", durable=True).close(closed=False)
    send(sender, "red", "blue")
    same = subscribe(client, RED, name="mine", durable=True)
    assert same.bodies() == [b"red"]
    same.close(closed=False)
    changed = subscribe(client, BLUE, name="mine", durable=True)
    assert changed.bodies() == []
    send(sender, "red", "blue")
    assert changed.bodies() == [b"blue"]
    assert len(topic.subscriptions()) == 1


def test_those_who_share_agree_on_the_filter(net: Network, topic: Topic) -> None:
    first = subscribe(net.connect(), RED, name="group|1", shared=True)
    second = subscribe(net.connect(), RED, name="group|2", shared=True)
    for filter in (BLUE, None):
        refused = subscribe(net.connect(), filter, name="group|3", shared=True)
        assert refused.error is not None
        assert refused.error.condition == "amqp:precondition-failed"
    send(net.connect().sender("news"), "red", "red", "blue")
    assert (first.bodies(), second.bodies()) == ([b"red"], [b"red"])


def test_an_idle_shared_one_takes_the_filter_of_who_comes(net: Network, topic: Topic) -> None:
    subscribe(net.connect(), RED, name="group|1", shared=True, durable=True).close(closed=False)
    sender = net.connect().sender("news")
    send(sender, "red")
    blue = subscribe(net.connect(), BLUE, name="group|2", shared=True, durable=True)
    send(sender, "red", "blue")
    assert blue.bodies() == [b"blue"]


def test_no_local(net: Network, topic: Topic) -> None:
    client = net.connect()
    reader = subscribe(client, NO_LOCAL)
    client.sender("news").send(b"mine")
    net.connect().sender("news").send(b"another's")
    assert reader.bodies() == [b"another's"]


def test_no_local_of_a_durable_one_is_about_its_connection_now(net: Network, topic: Topic) -> None:
    first = net.connect(container_id="reader")
    subscribe(first, NO_LOCAL, name="mine", durable=True).close(closed=False)
    other = net.connect()
    other.sender("news").send(b"kept")
    first.close()
    second = net.connect(container_id="reader")
    reader = subscribe(second, NO_LOCAL, name="mine", durable=True)
    second.sender("news").send(b"mine")
    other.sender("news").send(b"another's")
    assert reader.bodies() == [b"kept", b"another's"]
    assert len(topic.subscriptions()) == 1


def test_a_filter_that_is_demanded_and_unknown_leaves_no_subscription(
    net: Network, topic: Topic
) -> None:
    client = net.connect()
    link = client.session.attach_receiver(
        "mine",
        source=Source(
            address="news",
            filter={"unheard-of": Described("example:unheard-of", 1)},
            expiry_policy=TerminusExpiryPolicy.NEVER,
        ),
        properties={REQUIRE_FILTERS: True},
    )
    client.links[link] = receiver = Receiver(client, link)
    net.run()
    assert receiver.error is not None and receiver.error.condition == "amqp:not-implemented"
    assert topic.subscriptions() == []
    # Without the demand it is the answer that tells.
    told = subscribe(client, Described("example:unheard-of", 1), durable=True)
    assert told.remote_source.filter is None
    assert len(topic.subscriptions()) == 1
