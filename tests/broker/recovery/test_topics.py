"""Subscriptions that are kept are found again, with what they want and what waits in them."""

from __future__ import annotations

import pytest

from ferrymq_broker.management.setup import install
from ferrymq_broker.management.sliced_query import finish as finish_slices
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.store.tables import BODY, ENTRY, NODE, SUBSCRIPTION
from ferrymq_broker.values.policy import QueuePolicy, TopicPolicy
from ferrymq_codec.scalars import Described, Symbol
from ferrymq_types.messaging import Accepted, TerminusExpiryPolicy
from tests.broker.harness import Client, Network, Receiver
from tests.broker.management.asker import Asker
from tests.broker.recovery.kit import bodies, send, store_of, stored, subscribe

SELECTOR = "apache.org:selector-filter:string"
NO_LOCAL = "apache.org:no-local-filter:list"


@pytest.fixture
def topic(net: Network) -> None:
    net.space.create("news", TopicPolicy())


def reader(net: Network, container: str = "reader") -> Client:
    return net.connect(container_id=container)


def topic_of(net: Network) -> Topic:
    node = net.space.nodes["news"]
    assert isinstance(node, Topic)
    return node


def names(net: Network) -> list[str]:
    return [one.name for one in topic_of(net).subscriptions()]


@pytest.mark.spec("3.5.3")
@pytest.mark.usefixtures("topic")
def test_a_durable_subscription_has_what_it_had(net: Network) -> None:
    subscribe(reader(net), "news", "mine").close(closed=False)
    send(net.connect().sender("news"), b"a", b"b")
    net.restart()
    send(net.connect().sender("news"), b"c")
    assert subscribe(reader(net), "news", "mine").bodies() == [b"a", b"b", b"c"]
    assert names(net) == ["reader/mine"]


@pytest.mark.usefixtures("topic")
def test_one_that_was_in_use_is_there_as_well(net: Network) -> None:
    receiver = subscribe(reader(net), "news", "mine", credit=1)
    send(net.connect().sender("news"), b"a", b"b")
    assert receiver.bodies() == [b"a"]
    net.restart()
    assert subscribe(reader(net), "news", "mine").bodies() == [b"a", b"b"]


@pytest.mark.usefixtures("topic")
def test_one_that_is_not_kept_is_gone(net: Network) -> None:
    net.connect().receiver("news", credit=10)
    send(net.connect().sender("news"), b"a")
    assert store_of(net).count(SUBSCRIPTION) == store_of(net).count(ENTRY) == 0
    net.restart()
    assert names(net) == []


@pytest.mark.usefixtures("topic")
def test_one_that_was_closed_is_gone_with_all_it_had(net: Network) -> None:
    client = reader(net)
    receiver = subscribe(client, "news", "mine", credit=0)
    send(net.connect().sender("news"), b"a")
    receiver.close(closed=True)
    assert stored(net) == {(NODE, 1)}
    net.restart()
    assert subscribe(reader(net), "news", "mine").bodies() == []


@pytest.mark.spec("3.5.8")
@pytest.mark.usefixtures("topic")
def test_the_filter_is_the_same_one(net: Network) -> None:
    filter: dict[str, object] = {
        "s": Described(Symbol(SELECTOR), "colour = 'red'"),
        "n": Described(Symbol(NO_LOCAL), []),
    }
    subscribe(reader(net), "news", "mine", filter=filter).close(closed=False)
    send(net.connect().sender("news"), b"a", application={"colour": "red"})
    net.restart()
    sender = net.connect().sender("news")
    send(sender, b"b", application={"colour": "red"})
    send(sender, b"no", application={"colour": "blue"})
    client = reader(net)
    again = subscribe(client, "news", "mine", filter=filter)
    send(client.sender("news"), b"local", application={"colour": "red"})
    send(sender, b"c", application={"colour": "red"})
    assert again.bodies() == [b"a", b"b", b"c"]


@pytest.mark.usefixtures("topic")
def test_a_dead_letter_of_before_is_nobodys_own(net: Network) -> None:
    net.declare("q", QueuePolicy(message_ttl=10_000, dead_letter="news"))
    filter: dict[str, object] = {"n": Described(Symbol(NO_LOCAL), [])}
    subscribe(reader(net), "news", "mine", filter=filter).close(closed=False)
    send(net.connect().sender("q"), b"a")
    net.restart()
    net.advance(11)
    assert subscribe(reader(net), "news", "mine", filter=filter).bodies() == [b"a"]


@pytest.mark.usefixtures("topic")
def test_a_shared_subscription_is_shared(net: Network) -> None:
    capabilities = ["shared", "global"]
    for number in ("1", "2"):
        link = f"jobs|{number}"
        subscribe(net.connect(), "news", link, capabilities=capabilities).close(closed=False)
    send(net.connect().sender("news"), b"a", b"b")
    net.restart()
    assert names(net) == ["jobs"]
    one = subscribe(net.connect(), "news", "jobs|1", capabilities=capabilities, credit=1)
    two = subscribe(net.connect(), "news", "jobs|2", capabilities=capabilities, credit=1)
    assert one.bodies() + two.bodies() == [b"a", b"b"]


@pytest.mark.spec("2.6.3")
@pytest.mark.usefixtures("topic")
def test_a_link_without_a_source_is_told_what_it_was(net: Network) -> None:
    filter: dict[str, object] = {"s": Described(Symbol(SELECTOR), "a = 1")}
    subscribe(reader(net), "news", "mine", filter=filter).close(closed=False)
    net.restart()
    client = reader(net)
    link = client.session.attach_receiver("mine", source=None, target=None)
    receiver = Receiver(client, link)
    client.links[link] = receiver
    net.run()
    assert receiver.remote_source.address == "news"
    assert receiver.remote_source.filter == filter


@pytest.mark.usefixtures("topic")
def test_a_declared_subscription_stays_declared(net: Network) -> None:
    install(net.space, net.broker)
    asker = Asker(net)
    answer = asker.ask(
        "CREATE", "subscription", "news::audit", {"selector": "a = 1", "max-length": 5}
    )
    assert answer.status == 201
    asker.ask("UPDATE", "subscription", "news::audit", {"max-length": 7})
    net.restart()
    sender = net.connect().sender("news")
    send(sender, b"a", application={"a": 1})
    send(sender, b"b", application={"a": 2})
    (audit,) = topic_of(net).subscriptions()
    assert (audit.name, audit.declared, audit.queue.policy.max_length) == ("audit", True, 7)
    assert bodies(net.connect().receiver("news::audit", credit=10).take()) == [b"a"]


@pytest.mark.usefixtures("topic")
def test_a_message_that_several_have_is_stored_once(net: Network) -> None:
    for number in range(3):
        subscribe(reader(net, str(number)), "news", "mine").close(closed=False)
    send(net.connect().sender("news"), b"a" * 1000)
    store = store_of(net)
    assert (store.count(BODY), store.count(ENTRY)) == (1, 3)
    net.restart()
    assert 1000 < net.broker.agenda.held < 1100
    for number in range(3):
        assert store.count(BODY) == 1
        receiver = subscribe(reader(net, str(number)), "news", "mine")
        assert receiver.bodies() == [b"a" * 1000]
        receiver.settle(Accepted())
    assert (store.count(BODY), store.count(ENTRY)) == (0, 0)
    assert net.broker.agenda.held == 0


@pytest.mark.spec("3.5.6")
@pytest.mark.usefixtures("topic")
def test_its_time_runs_on_while_the_broker_is_away(net: Network) -> None:
    policy = TerminusExpiryPolicy.LINK_DETACH
    subscribe(reader(net, "a"), "news", "mine", policy=policy, timeout=100).close(closed=False)
    net.advance(50)
    subscribe(reader(net, "b"), "news", "mine", policy=policy, timeout=100).close(closed=False)
    net.now += 60
    net.restart()
    assert names(net) == ["b/mine"]
    net.restart()
    net.advance(39)
    assert names(net) == ["b/mine"]
    net.advance(2)
    assert names(net) == []
    net.restart()
    assert names(net) == []


@pytest.mark.spec("3.5.6")
@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize(
    "policy", [TerminusExpiryPolicy.SESSION_END, TerminusExpiryPolicy.CONNECTION_CLOSE]
)
def test_the_end_of_the_broker_is_that_of_sessions_and_connections(
    net: Network, policy: TerminusExpiryPolicy
) -> None:
    subscribe(reader(net, "a"), "news", "mine", policy=policy, timeout=100)
    subscribe(reader(net, "b"), "news", "mine", policy=policy, timeout=100).close(closed=False)
    subscribe(reader(net, "c"), "news", "mine", policy=policy)
    net.restart()
    assert names(net) == ["a/mine", "b/mine"]
    net.advance(60)
    net.restart()
    net.advance(39)
    assert names(net) == ["a/mine", "b/mine"]
    net.advance(2)
    assert names(net) == []


@pytest.mark.usefixtures("topic")
def test_who_comes_back_in_time_stops_it(net: Network) -> None:
    policy = TerminusExpiryPolicy.LINK_DETACH
    subscribe(reader(net), "news", "mine", policy=policy, timeout=100).close(closed=False)
    net.restart()
    net.advance(50)
    again = subscribe(reader(net), "news", "mine", policy=TerminusExpiryPolicy.NEVER)
    again.close(closed=False)
    net.now += 1000
    net.restart()
    assert names(net) == ["reader/mine"]


def test_a_deleted_topic_leaves_nothing(net: Network) -> None:
    node = net.space.create("news", TopicPolicy())
    subscribe(reader(net), "news", "mine").close(closed=False)
    send(net.connect().sender("news"), b"a")
    net.space.remove(node)
    net.connect()
    assert stored(net) == set()
    net.restart()
    assert net.space.durables == {}


def test_subscriptions_of_a_topic_that_is_not_durable_are_gone(net: Network) -> None:
    net.space.create("news", TopicPolicy(durable=False))
    subscribe(reader(net), "news", "mine")
    send(net.connect().sender("news"), b"a")
    assert stored(net) == set()


def test_a_queue_that_goes_by_itself_takes_its_subscription_along(net: Network) -> None:
    net.space.create("news", TopicPolicy(subscription=QueuePolicy(auto_delete=10_000)))
    subscribe(reader(net), "news", "mine").close(closed=False)
    net.advance(11)
    assert store_of(net).count(SUBSCRIPTION) == 0
    net.restart()
    assert names(net) == []


@pytest.mark.usefixtures("topic")
def test_time_that_was_stopped_does_not_count(net: Network) -> None:
    policy = TerminusExpiryPolicy.LINK_DETACH
    subscribe(reader(net), "news", "mine", policy=policy, timeout=100).close(closed=False)
    net.advance(50)
    subscribe(reader(net), "news", "mine", policy=policy, timeout=100)
    net.advance(90)
    net.restart()
    net.advance(99)
    assert names(net) == ["reader/mine"]
    net.advance(2)
    assert names(net) == []


@pytest.mark.usefixtures("topic")
def test_what_is_known_of_it_is_known_again(net: Network) -> None:
    subscribe(reader(net), "news", "mine")
    subscribe(net.connect(), "news", "ours|1", capabilities=["shared"])
    subscribe(net.connect(), "news", "all|1", capabilities=["shared", "global"])
    topic_of(net).declare_subscription("audit", policy=QueuePolicy(max_length=3))
    net.connect()

    def known() -> list[dict[str, object]]:
        found = [one.describe() for one in topic_of(net).subscriptions()]
        return [{k: v for k, v in one.items() if k not in ("links", "consumers")} for one in found]

    before = known()
    net.restart()
    assert known() == before and len(before) == 4


@pytest.mark.usefixtures("topic")
def test_messages_of_before_are_not_local_to_anybody(net: Network) -> None:
    filter: dict[str, object] = {"n": Described(Symbol(NO_LOCAL), [])}
    subscribe(reader(net), "news", "mine", filter=filter).close(closed=False)
    send(net.connect().sender("q"), b"a")
    net.restart()
    assert finish_slices(net.queue("q").move(topic_of(net), 1)) == (1, None)
    assert subscribe(reader(net), "news", "mine", filter=filter).bodies() == [b"a"]


@pytest.mark.usefixtures("topic")
def test_a_filter_that_would_be_a_position_elsewhere_is_one_here(net: Network) -> None:
    words = "amqp.annotation.x-opt-offset > '5'"
    filter: dict[str, object] = {"s": Described(Symbol(SELECTOR), words)}
    subscribe(reader(net), "news", "mine", filter=filter).close(closed=False)
    net.restart()
    sender = net.connect().sender("news")
    send(sender, b"no")
    send(sender, b"yes", annotations={"x-opt-offset": 6})
    assert subscribe(reader(net), "news", "mine", filter=filter).bodies() == [b"yes"]
