"""Named rules decide which messages a subscription gets, and in which form."""

from __future__ import annotations

import pytest

from ferrymq_broker.management import ADDRESS
from ferrymq_broker.management.setup import install
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.topics import fanout, rules
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.store.tables import RULE, SUBSCRIPTION
from ferrymq_broker.values.policy import ExchangePolicy, QueuePolicy, TopicPolicy
from ferrymq_types.messaging import Accepted, ApplicationProperties, Data, Properties
from tests.broker.harness import Client, Network, Receiver, decode
from tests.broker.management.asker import Answer, Asker
from tests.broker.recovery.kit import send, store_of, stored_network, subscribe
from tests.broker.transactions.kit import Controller, post_sections

TRUE: dict[str, object] = {"true": True}


def asker_of(net: Network) -> Asker:
    """A client of management, which the broker has from now on."""
    if ADDRESS not in net.space.nodes:
        install(net.space, net.broker)
    return Asker(net)


@pytest.fixture
def asker(net: Network, topic: Topic) -> Asker:
    """A client of management; the topic has a subscription."""
    asker = asker_of(net)
    assert asker.ask("CREATE", "subscription", "news::s").status == 201
    return asker


def add(asker: Asker, name: str, rule: dict[str, object], to: str = "news::s") -> Answer:
    return asker.ask("ADD-RULE", "subscription", to, {"rule": name, **rule})


def publish(net: Network, *subjects: str, to: str = "news", **application: object) -> None:
    sender = net.connect().sender(to)
    for subject in subjects:
        [sent] = send(
            sender,
            subject.encode(),
            properties=Properties(subject=subject),
            application=dict(application),
        )
        assert isinstance(sent.remote_state, Accepted)


def received(net: Network, address: str = "news::s") -> list[tuple[str | None, object]]:
    """The subject and the application property `by` of what there is."""
    client = net.connect()
    found: list[tuple[str | None, object]] = []
    receiver: Receiver = client.receiver(address, credit=1000)
    for delivery in receiver.take():
        properties, application = Properties(), {}
        for section in decode(delivery.payload):
            if isinstance(section, Properties):
                properties = section
            elif isinstance(section, ApplicationProperties):
                application = section.value
        found.append((properties.subject, application.get("by")))
        receiver.settle(Accepted(), delivery)
    client.close()
    return found


def test_a_message_that_matches_any_rule_comes_once(net: Network, asker: Asker) -> None:
    publish(net, "before")
    assert add(asker, "one", {"sql": "sys.subject LIKE 'a%'"}).status == 201
    assert add(asker, "two", {"sql": "user.weight > 2"}).status == 201
    assert add(asker, "three", {"correlation": {"subject": "ab", "to": None}}).status == 201
    publish(net, "ab", "xy")
    publish(net, "heavy", "ab", weight=3)
    assert received(net) == [("before", None), ("ab", None), ("heavy", None), ("ab", None)]


def test_each_rule_with_an_action_adds_a_copy(net: Network, asker: Asker) -> None:
    add(asker, "plain", TRUE)
    add(asker, "one", {"sql": "sys.subject = 'a'", "action": "SET by = 'one'"})
    add(asker, "two", {"true": True, "action": "SET by = 'two'; SET sys.subject = 'changed'"})
    add(asker, "three", {"correlation": {"subject": "a"}, "action": "SET by = 'three'"})
    add(asker, "never", {"false": True, "action": "SET by = 'never'"})
    publish(net, "a", "b")
    assert received(net) == [
        ("a", None), ("a", "one"), ("changed", "two"), ("a", "three"),
        ("b", None), ("changed", "two"),
    ]  # fmt: skip


def test_only_an_action_means_no_plain_copy(net: Network, asker: Asker) -> None:
    add(asker, "one", {"true": True, "action": "SET by = 1"})
    publish(net, "a")
    assert received(net) == [("a", 1)]


def test_other_subscriptions_get_the_message_as_it_is(net: Network, asker: Asker) -> None:
    add(asker, "one", {"true": True, "action": "SET by = 1"})
    reader = net.connect().receiver("news", credit=10)
    asker.ask("CREATE", "subscription", "news::other", {"selector": "by IS NULL"})
    publish(net, "a")
    assert len(reader.bodies()) == 1
    assert received(net, "news::other") == [("a", None)]


def test_the_filter_of_the_subscription_comes_first(net: Network, asker: Asker) -> None:
    asker.ask("CREATE", "subscription", "news::f", {"selector": "weight > 2"})
    add(asker, "all", TRUE, "news::f")
    add(asker, "by", {"true": True, "action": "SET by = 1"}, "news::f")
    publish(net, "light", weight=1)
    publish(net, "heavy", weight=3)
    assert received(net, "news::f") == [("heavy", None), ("heavy", 1)]


def test_without_any_rule_left_nothing_comes(net: Network, asker: Asker) -> None:
    def attribute() -> object:
        return asker.ask("READ", "subscription", "news::s").map()["rules"]

    assert attribute() is None
    add(asker, "all", TRUE)
    add(asker, "c", {"correlation": {"subject": "a"}})
    assert attribute() == 2
    assert asker.ask("REMOVE-RULE", "subscription", "news::s", {"rule": "all"}).status == 204
    publish(net, "a", "b")
    assert asker.ask("REMOVE-RULE", "subscription", "news::s", {"rule": "c"}).status == 204
    publish(net, "a")
    assert attribute() == 0
    assert received(net) == [("a", None)]
    assert asker.ask("REMOVE-RULE", "subscription", "news::s", {"rule": "c"}).status == 404


def test_rules_are_listed_as_they_were_given(net: Network, asker: Asker) -> None:
    given: list[dict[str, object]] = [
        {"name": "all", "true": True},
        {"name": "none", "false": True, "action": "REMOVE a"},
        {"name": "s", "sql": "a = 1\nAND b", "action": "SET a = 2"},
        {"name": "c", "correlation": {"subject": "x", "properties": {"n": 5}}},
    ]
    for rule in given:
        assert add(
            asker, str(rule["name"]), {k: v for k, v in rule.items() if k != "name"}
        ).map() == (rule)
    listed = asker.ask("LIST-RULES", "subscription", "news::s").map()
    assert listed == {"rules": given, "count": 4}
    some = asker.ask("LIST-RULES", "subscription", "news::s", {"skip": 1, "top": 2}).map()
    assert some["rules"] == given[1:3]


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"rule": "r"}, 400, "one filter"),
        ({"rule": "r", "true": True, "false": True}, 400, "one filter"),
        ({"rule": "r", "true": 1}, 400, "must be true"),
        ({"true": True}, 400, "rule"),
        ({"rule": "", "true": True}, 400, "1 to 256"),
        ({"rule": "x" * 257, "true": True}, 400, "1 to 256"),
        ({"rule": "r", "sql": 5}, 400, "string"),
        ({"rule": "r", "sql": "a =\n= 1"}, 400, "line 2, column 1"),
        ({"rule": "r", "true": True, "action": "SET sys.user-id = 1"}, 400, "line 1, column 4"),
        ({"rule": "r", "true": True, "action": 5}, 400, "action"),
        ({"rule": "r", "correlation": {"label": "x"}}, 400, "no field 'label'"),
        ({"rule": "r", "correlation": "x"}, 400, "map"),
        ({"rule": "r", "true": True, "extra": 1}, 400, "extra"),
        ({"rule": "there", "true": True}, 409, "already"),
    ],
)
def test_what_is_no_rule(
    net: Network, asker: Asker, body: dict[str, object], status: int, reason: str
) -> None:
    add(asker, "there", TRUE)
    answer = asker.ask("ADD-RULE", "subscription", "news::s", body)
    assert (answer.status, reason in answer.description) == (status, True), answer
    assert asker.ask("READ", "subscription", "news::s").map()["rules"] == 1


def test_the_number_and_the_size_of_rules_are_limited(net: Network, asker: Asker) -> None:
    asker.ask("UPDATE", "topic", "news", {"max-rules": 2})
    add(asker, "1", TRUE)
    add(asker, "2", TRUE)
    refused = add(asker, "3", TRUE)
    assert refused.status == 507 and "max-rules" in refused.description
    asker.ask("UPDATE", "topic", "news", {"max-rules": 0})
    large = {"sql": f"a = '{'x' * 8000}'"}
    fitting = rules.MAX_SIZE // 8192
    for number in range(fitting):
        assert add(asker, f"large {number}", large).status == 201
    statuses = [add(asker, f"more {number}", large).status for number in range(10)]
    assert statuses[-1] == 507


def test_copies_of_large_messages_are_limited(net: Network, asker: Asker) -> None:
    size = fanout.MAX_COPIED // 2
    for number in range(3):
        add(asker, str(number), {"true": True, "action": f"SET by = {number}"})
    net.connect().sender("news").send_sections(Data(value=b"x" * size))
    publish(net, "small")
    assert received(net) == [(None, 0), ("small", 0), ("small", 1), ("small", 2)]
    assert asker.ask("READ", "subscription", "news::s").map()["refused"] == 2


def test_ten_thousand_correlation_rules(net: Network, asker: Asker, topic: Topic) -> None:
    from ferrymq_broker.filters.rule import make_rule

    for number in range(9_999):
        topic.add_rule(
            topic.subscription("s"),
            make_rule(f"r{number}", {"correlation": {"subject": f"s{number}"}}),
        )
    add(asker, "with", {"correlation": {"subject": "s7"}, "action": "SET by = 1"})
    subscription = topic.subscription("s")
    assert subscription.rules is not None and subscription.rules.work() == 2
    publish(net, "s7", "s8", "none")
    assert received(net) == [("s7", None), ("s7", 1), ("s8", None)]


def test_publishing_in_a_transaction(net: Network, asker: Asker) -> None:
    add(asker, "one", {"sql": "n > 1", "action": "SET by = n"})
    add(asker, "all", TRUE)
    client: Client = net.connect()
    control = Controller(client)
    sender = client.sender("news")
    for fail in (True, False):
        txn = control.declare()
        post_sections(
            sender, txn, Properties(subject="t"), ApplicationProperties({"n": 2}), Data(b"x")
        )
        assert received(net) == []
        control.roll_back(txn) if fail else control.commit(txn)
    assert received(net) == [("t", None), ("t", 2)]


def test_publishing_by_an_exchange(net: Network, asker: Asker) -> None:
    exchange = net.space.create("x", ExchangePolicy())
    assert isinstance(exchange, Exchange)
    exchange.bind("news", "a", {})
    add(asker, "one", {"true": True, "action": "SET by = 1"})
    publish(net, "a", to="x")
    assert received(net) == [("a", 1)]


def test_dead_letters_come_by_rules_as_well(net: Network, asker: Asker) -> None:
    net.declare("q", QueuePolicy(message_ttl=1000, dead_letter="news"))
    add(asker, "one", {"sql": "sys.subject = 'a'", "action": "SET by = 1"})
    publish(net, "a", "b", to="q")
    net.advance(2)
    assert received(net) == [("a", 1)]


def test_a_copy_expires_when_its_action_says(net: Network, asker: Asker) -> None:
    add(asker, "one", {"true": True, "action": "SET sys.ttl = 1000; SET by = 1"})
    add(asker, "two", {"true": True, "action": "SET by = 2"})
    publish(net, "a")
    net.advance(2)
    assert received(net) == [("a", 2)]


def test_rules_and_copies_survive_a_restart() -> None:
    net = stored_network()
    net.space.create("news", TopicPolicy())
    subscribe(net.connect(container_id="c"), "news", "mine").close(closed=False)
    asker = asker_of(net)
    name = "news::c/mine"
    given: list[dict[str, object]] = [
        {"name": "s", "sql": "sys.subject = 'a'", "action": "SET by = 1"},
        {"name": "c", "correlation": {"subject": "b", "properties": {"n": 5}}},
        {"name": "gone", "true": True},
        {"name": "all", "false": True},
    ]
    for rule in given:
        add(asker, str(rule["name"]), {k: v for k, v in rule.items() if k != "name"}, name)
    asker.ask("REMOVE-RULE", "subscription", name, {"rule": "gone"})
    publish(net, "a", "b")
    publish(net, "b", n=5)
    net.restart()
    publish(net, "a", "b")
    asker = asker_of(net)
    add(asker, "later", {"sql": "sys.subject = 'c'"}, name)
    net.restart()
    publish(net, "c", "d")
    asker = asker_of(net)
    listed = asker.ask("LIST-RULES", "subscription", name).map()
    assert listed["rules"] == [
        given[0],
        given[1],
        given[3],
        {"name": "later", "sql": "sys.subject = 'c'"},
    ]
    assert received(net, name) == [("a", 1), ("b", None), ("a", 1), ("c", None)]
    assert store_of(net).count(RULE) == 4
    asker.ask("DELETE", "subscription", name)
    assert store_of(net).count(RULE) == store_of(net).count(SUBSCRIPTION) == 0


def test_a_subscription_that_lost_its_rules_gets_nothing_after_a_restart() -> None:
    net = stored_network()
    net.space.create("news", TopicPolicy())
    asker = asker_of(net)
    asker.ask("CREATE", "subscription", "news::s")
    add(asker, "all", TRUE)
    asker.ask("REMOVE-RULE", "subscription", "news::s", {"rule": "all"})
    net.restart()
    publish(net, "a")
    assert received(net) == []
    add(asker_of(net), "all", TRUE)
    asker_of(net).ask("DELETE", "topic", "news")
    assert store_of(net).count(RULE) == 0
