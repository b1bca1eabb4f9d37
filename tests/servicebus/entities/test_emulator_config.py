"""The emulator's Config.json makes entities, which clients use over the wire."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_types.messaging import (
    Accepted,
    ApplicationProperties,
    Data,
    Modified,
    Properties,
    Rejected,
)
from tests.broker.access.guarded import is_open
from tests.broker.harness import Network, decode, text
from tests.broker.lifecycle.letters import bodies, browse, death, drain, send
from tests.broker.recovery.kit import send as send_durable
from tests.broker.recovery.kit import stored_network
from tests.servicebus.entities.azure import SAMPLE, start, written


def changed(*path: object, value: object) -> dict[str, object]:
    """The sample with another value at one place; without a value there, it is added."""
    document: Any = copy.deepcopy(SAMPLE)
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return document  # type: ignore[no-any-return]


QUEUE = ("UserConfig", "Namespaces", 0, "Queues", 0)
TOPIC = ("UserConfig", "Namespaces", 0, "Topics", 0)
RULE = (*TOPIC, "Subscriptions", 1, "Rules", 0)


def test_a_queue_has_the_settings_of_the_file(net: Network, tmp_path: Path) -> None:
    start(net, written(tmp_path), tmp_path)
    client = net.connect()
    sender = client.sender("Orders")
    for body in (b"a", b"again"):
        send(sender, body, properties=Properties(message_id="1"))
    receiver = client.receiver("Orders", credit=1)
    # The third delivery is the last one. A lapsed lock counts.
    net.advance(31)
    for _ in range(2):
        receiver.take()
        receiver.credit(1)
        (delivery,) = receiver.deliveries
        receiver.settle(Modified(delivery_failed=True), delivery)
    graveyard = net.connect().receiver("Orders/$DeadLetterQueue", credit=2)
    (dead,) = graveyard.take()
    assert (text(dead.payload), death(dead)["reason"]) == (b"a", "delivery-limit")
    graveyard.settle(Accepted(), dead)
    send(sender, b"late", properties=Properties(message_id="2"))
    net.advance(3601)
    (late,) = graveyard.take()
    assert (text(late.payload), death(late)["reason"]) == (b"late", "expired")


def test_a_queue_without_properties_has_the_defaults(net: Network, tmp_path: Path) -> None:
    start(net, written(tmp_path), tmp_path)
    policy = net.queue("plain").policy
    assert (policy.lock_duration, policy.delivery_limit) == (60_000, 9)
    assert (policy.message_ttl, policy.duplicate_window, policy.sessions) == (0, 0, False)
    client = net.connect()
    sender = client.sender("plain")
    send(sender, b"a", ttl=1000)
    net.advance(2)
    assert browse(net, "plain/$DeadLetterQueue") == []
    send(sender, b"low", priority=1)
    send(sender, b"high", priority=9)
    assert bodies(net, "plain") == [b"low", b"high"]


def test_subscriptions_forward_and_have_rules(net: Network, tmp_path: Path) -> None:
    start(net, written(tmp_path), tmp_path)
    client = net.connect()
    sender = client.sender("news")
    sender.send_sections(Properties(message_id="1", subject="sql"), Data(value=b"a"))
    sender.send_sections(Properties(message_id="1", subject="sql"), Data(value=b"again"))
    sender.send_sections(
        Properties(message_id="2", subject="subject1", content_type="application/text"),
        ApplicationProperties(value={"prop": "value"}),
        Data(value=b"b"),
    )
    sender.send_sections(Properties(message_id="3", subject="other"), Data(value=b"c"))
    # The name of the queue is written with other capitals in the file.
    assert browse(net, "plain") == [b"a", b"b", b"c"]
    first, second = drain(net, "news::some")
    assert (text(first.payload), text(second.payload)) == (b"a", b"b")
    assert ApplicationProperties(value={"seen": True}) in decode(first.payload)


def test_one_delivery_may_be_the_most(net: Network, tmp_path: Path) -> None:
    start(net, written(tmp_path), tmp_path)
    client = net.connect()
    client.sender("news").send_sections(Properties(subject="sql"), Data(value=b"a"))
    client.receiver("news::some", credit=1).settle(Modified(delivery_failed=True))
    assert bodies(net, "news::some/$DeadLetterQueue") == [b"a"]


def test_event_hubs_are_streams(net: Network, tmp_path: Path) -> None:
    start(net, written(tmp_path), tmp_path)
    hub, open = net.space.nodes["hub"], net.space.nodes["open"]
    assert isinstance(hub, Stream) and isinstance(open, Stream)
    assert (len(hub.partitions), hub.policy.consumer_groups) == (2, ("$Default", "cg1"))
    assert (len(open.partitions), open.policy.consumer_groups) == (1, ())
    assert is_open(net.connect().receiver("hub::1", credit=1))


def test_a_restart_keeps_the_entities_with_their_messages(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    net = stored_network()
    start(net, written(tmp_path), tmp_path)
    client = net.connect()
    # These clients do not say that their messages are durable.
    send_durable(client.sender("Orders"), b"a", durable=False)
    client.receiver("Orders", credit=1).settle(Rejected())
    send_durable(client.sender("news"), b"b", durable=False, properties=Properties(subject="sql"))
    # The file changes before the next start; a stored entity is found whatever its capitals are.
    document = changed(*QUEUE, "Properties", "MaxDeliveryCount", value=7)
    document = json.loads(json.dumps(document).replace('"Orders"', '"ORDERS"'))
    start(net, written(tmp_path, document), tmp_path)
    assert browse(net, "Orders/$DeadLetterQueue") == [b"a"]
    assert browse(net, "news::some") == [b"b"]
    assert "not in the configuration" not in caplog.text
    assert net.queue("Orders").policy.delivery_limit == 6 and "ORDERS" not in net.space.nodes
    topic = net.space.nodes["news"]
    assert isinstance(topic, Topic)
    rules = [
        [] if one.rules is None else [rule.name for rule in one.rules.all()]
        for one in topic.subscriptions()
    ]
    assert rules == [["$Default"], ["by-values", "by-text"]]


def test_a_stored_queue_cannot_get_sessions(tmp_path: Path) -> None:
    net = stored_network()
    start(net, written(tmp_path), tmp_path)
    document = changed(*QUEUE, "Properties", "RequiresSession", value=True)
    with pytest.raises(ConfigError, match="'Orders' is declared with sessions, but stored without"):
        start(net, written(tmp_path, document), tmp_path)


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (
            changed(*QUEUE, "Properties", "LockDuration", value="PT6M"),
            "the queue 'Orders': LockDuration: 'PT6M' is not from 1ms to 5m",
        ),
        (
            changed(*QUEUE, "Properties", "LockDuration", value="1 minute"),
            "the queue 'Orders': LockDuration: '1 minute': a duration is text of ISO 8601",
        ),
        (
            changed(*QUEUE, "Properties", "MaxDeliverycounts", value=1),
            "the queue 'Orders': unknown key 'MaxDeliverycounts'; did you mean 'MaxDeliveryCount'?",
        ),
        (
            changed(*QUEUE, "Properties", "RequiresSession", value="yes"),
            "the queue 'Orders': RequiresSession: 'yes' is neither true nor false",
        ),
        (
            changed(*QUEUE, "Name", value="PLAIN"),
            "the queue 'plain': Name: 'PLAIN' is declared already",
        ),
        (changed(*QUEUE, "Name", value="a::b"), "the queue 'a::b': Name: it is reserved"),
        (changed(*QUEUE, "Size", value=1), "Queues[0] 'Orders': unknown key 'Size'"),
        (
            changed(*TOPIC, "Properties", "LockDuration", value="PT1M"),
            "the topic 'news': unknown key 'LockDuration'",
        ),
        (
            changed(*TOPIC, "Subscriptions", 0, "Name", value="some"),
            "the subscription of 'news' 'some': Name: it is declared twice",
        ),
        (
            changed(*RULE, "Properties", "FilterType", value="Other"),
            "Rules[0] 'by-values': FilterType: 'Other' is not 'Sql' or 'Correlation'",
        ),
        (
            changed(*RULE, "Properties", "FilterType", value="Sql"),
            "Rules[0] 'by-values': SqlFilter: SqlExpression: a text is needed",
        ),
        (
            changed(
                *TOPIC, "Subscriptions", 1, "Rules", 1, "Properties", "SqlFilter",
                value={"SqlExpression": "sys.Label = "},
            ),
            "the subscription of 'news' 'some': the rule 'by-text': ",
        ),
        (
            changed("UserConfig", "NamespaceConfig", 0, "Entities", 0, "PartitionCount", value=0),
            "the event hub 'hub': PartitionCount: 0 is no number from 1 to 1024",
        ),
        ({"Userconfig": {"Namespaces": {}}}, "UserConfig.Namespaces: {} is no list"),
        ({"Queues": []}, "unknown key 'Queues'; 'UserConfig' is needed"),
        ([], "Config.json: [] is no map"),
    ],
)  # fmt: skip
def test_a_mistake_names_the_entity_and_the_key(
    net: Network, tmp_path: Path, document: object, told: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        start(net, written(tmp_path, document), tmp_path)
    assert str(tmp_path / "Config.json") in str(raised.value)
    assert told in str(raised.value)


def test_all_mistakes_are_told_together(net: Network, tmp_path: Path) -> None:
    document: Any = changed(*QUEUE, "Properties", "LockDuration", value=5)
    document["UserConfig"]["NamespaceConfig"][0]["Entities"][0]["PartitionCount"] = "x"
    with pytest.raises(ConfigError) as raised:
        start(net, written(tmp_path, document), tmp_path)
    assert len(str(raised.value).splitlines()) == 2


@pytest.mark.parametrize("content", ["{", "\xff", "[" * 100_000])
def test_a_file_that_cannot_be_read(net: Network, tmp_path: Path, content: str) -> None:
    (tmp_path / "Config.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"Config\.json"):
        start(net, {"config": "Config.json"}, tmp_path)
    with pytest.raises(ConfigError, match="No such file"):
        start(net, {"config": "Other.json"}, tmp_path)
