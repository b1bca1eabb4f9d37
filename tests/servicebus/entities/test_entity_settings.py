"""Entities in the broker's own configuration, and entities that clients name first."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.config.units import MAX_DURATION
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_servicebus.durations import milliseconds_of
from ferrymq_servicebus.entities import EntityError, entity_of, queue_policy
from ferrymq_types.messaging import Data, Properties, Rejected
from tests.broker.access.guarded import is_open
from tests.broker.harness import Network
from tests.broker.lifecycle.letters import bodies, browse
from tests.servicebus.entities.azure import start

TOML = """
name = "azure"
create-entities = false

[[queue]]
name = "orders"
lock-duration = "30s"
max-delivery-count = 5
ForwardDeadLetteredMessagesTo = "sb://localhost/Failed/"

[[queue]]
name = "failed"

[[topic]]
name = "news"
requires-duplicate-detection = true

[[topic.subscription]]
name = "audit"
requires-session = true

[[topic.subscription.rule]]
name = "urgent"
sql = "sys.Label = 'urgent'"

[[hub]]
name = "clicks"
partition-count = 3
consumer-groups = ["one"]
"""


def test_the_tables_declare_entities(net: Network) -> None:
    start(net, tomllib.loads(TOML))
    policy = net.queue("orders").policy
    assert (policy.lock_duration, policy.delivery_limit) == (30_000, 4)
    client = net.connect()
    client.sender("orders").send(b"a")
    client.receiver("orders", credit=1).settle(Rejected())
    assert bodies(net, "failed") == [b"a"]
    sender = client.sender("news")
    for subject in ("urgent", "other"):
        sender.send_sections(Properties(subject=subject, group_id="s"), Data(value=b"b"))
    assert browse(net, "news::audit") == [b"b"]
    assert is_open(client.receiver("clicks::2", credit=1))
    assert not is_open(client.receiver("elsewhere", credit=1))


def test_a_queue_is_made_by_its_name(net: Network) -> None:
    start(net, {})
    client = net.connect()
    client.sender("orders").send(b"a")
    client.receiver("orders", credit=1).settle(Rejected())
    assert bodies(net, "orders/$DeadLetterQueue") == [b"a"]
    assert net.queue("orders").policy == queue_policy({})
    assert is_open(client.receiver("later/$DeadLetterQueue", credit=1))
    assert "later" in net.space.nodes


def test_a_topic_and_its_subscription_are_made_by_the_path(net: Network) -> None:
    start(net, {})
    client = net.connect()
    receiver = client.receiver("news::audit", credit=2)
    client.sender("news").send(b"a")
    assert receiver.bodies() == [b"a"]
    assert isinstance(net.space.nodes["news"], Topic)
    other = net.connect().receiver("news::other", credit=1)
    client.sender("news").send(b"b")
    assert other.bodies() == [b"b"] and b"b" in receiver.bodies()


@pytest.mark.parametrize("address", ["orders/$management", "$x", "orders/$Other", "x$"])
def test_some_names_make_nothing(net: Network, address: str) -> None:
    start(net, {})
    receiver = net.connect().receiver(address)
    assert receiver.error is not None and receiver.error.condition == "amqp:not-found"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"queue": {"name": "x"}}, "personality.queue: tables are needed"),
        (
            {"create-entities": 1},
            'personality.create-entities: true, false or "event-hubs" is needed',
        ),
        ({"config": 7}, "personality.config: 7 is no name of a file"),
        ({"queue": [{}]}, "personality.queue: the queue None: Name: 1 to 260 characters"),
        (
            {"queue": [{"name": "q", "status": "Deleted"}]},
            "personality.queue: the queue 'q': Status: 'Deleted' is not possible",
        ),
        (
            {"topic": [{"name": "t", "subscription": [{"name": "a/b"}]}]},
            "personality.topic.subscription: the subscription of 't' 'a/b': Name: letters",
        ),
    ],
)
def test_a_mistake_names_its_place(net: Network, settings: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        start(net, settings)
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT1M", 60_000),
        ("pt0.5s", 500),
        ("P1DT2H3M4.0001S", 86_400_000 + 7_384_001),
        ("P10675199DT2H48M5.4775807S", MAX_DURATION),
        ("1h30m", 5_400_000),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert milliseconds_of(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "PT1", "1", "P1Y", "-PT1M", None, 5])
def test_no_durations(text: object) -> None:
    with pytest.raises(ValueError, match="a duration is text"):
        milliseconds_of(text)


@given(st.dictionaries(st.text(max_size=20), st.one_of(st.none(), st.text(), st.integers())))
def test_a_description_is_a_policy_or_an_error(description: dict[str, object]) -> None:
    try:
        queue_policy(description, "it")
    except EntityError as error:
        assert str(error).startswith("it: ")


def test_paths_of_entities() -> None:
    for address in ("a/b", "/a/b", "sb://host/a/b", "amqps://host:5671/a/b/"):
        assert entity_of(address) == "a/b"
