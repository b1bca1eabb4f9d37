"""What a store must not have is dropped and said, or the broker does not start: never guessed."""

from __future__ import annotations

import pytest

from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.map_values import decode_map, encode_map
from ferrymq_broker.store.tables import (
    BINDING,
    BODY,
    DUPLICATE,
    ENTRY,
    NODE,
    SCHEDULED,
    STATE,
    SUBSCRIPTION,
)
from ferrymq_broker.values.policy import QueuePolicy, TopicPolicy
from ferrymq_types.messaging import Modified, Properties
from tests.broker.harness import Network
from tests.broker.recovery.kit import browse, send, store_of, stored, subscribe


def filled(net: Network) -> None:
    """A queue with something in every table, beside one that stays."""
    net.declare("q", QueuePolicy(duplicate_window=60_000))
    sender = net.connect().sender("q")
    send(sender, b"a", b"b", properties=Properties(message_id="one"))
    send(sender, b"b", properties=Properties(message_id="two"))
    send(sender, b"c", annotations={"x-opt-delivery-delay": 60_000})
    receiver = net.connect().receiver("q", credit=1)
    receiver.settle(Modified(delivery_failed=True))
    send(net.connect().sender("other"), b"x")


def test_records_of_a_node_that_is_gone_are_dropped(net: Network) -> None:
    filled(net)
    store = store_of(net)
    for table in (NODE, ENTRY, STATE, SCHEDULED, DUPLICATE):
        assert store.count(table) > 0
    del store.records[NODE, 1, 0]
    store.records[ENTRY, 9, 1] = b""
    net.restart()
    net.connect()
    assert browse(net, "other") == [b"x"]
    assert stored(net) == {(NODE, 2), (ENTRY, 2)}
    # Its id is not given away as long as anything might have it.
    send(net.connect().sender("third"), b"y")
    assert max(key[1] for key in store.records) == 10


def test_a_body_that_nobody_has_is_dropped(net: Network) -> None:
    net.space.create("t", TopicPolicy())
    for container in ("a", "b"):
        subscribe(net.connect(container_id=container), "t", "s").close(closed=False)
    send(net.connect().sender("t"), b"m")
    store = store_of(net)
    assert store.count(BODY) == 1
    for key in [key for key in store.records if key[0] == ENTRY]:
        del store.records[key]
    net.restart()
    net.connect()
    assert store.count(BODY) == 0
    assert net.broker.agenda.bodies == {}


def test_subscriptions_and_bindings_of_what_is_gone_are_dropped(net: Network) -> None:
    net.space.create("t", TopicPolicy())
    subscribe(net.connect(), "t", "s").close(closed=False)
    send(net.connect().sender("t"), b"m")
    store = store_of(net)
    del store.records[NODE, 1, 0]
    store.records[BINDING, 77, 1] = encode_map({"node": 1, "key": ""})
    net.restart()
    net.connect()
    assert stored(net) == set()


@pytest.mark.parametrize(
    ("table", "change", "words"),
    [
        (NODE, {"kind": "heap"}, "heap"),
        (NODE, {"policy": {"overflow": "hope"}}, "hope"),
        (NODE, {"policy": {"max_length": "many"}}, "max_length"),
        (NODE, {"policy": 5}, "policy"),
        (NODE, {"address": ""}, "address"),
        (NODE, {"ttls": [5]}, "settings"),
    ],
)
def test_a_record_that_makes_no_sense_stops_the_broker(
    net: Network, table: int, change: dict[str, object], words: str
) -> None:
    send(net.connect().sender("q"), b"a")
    store = store_of(net)
    key = (table, 1, 0)
    store.records[key] = encode_map({**decode_map(store.records[key]), **change})
    with pytest.raises(StoreDamaged, match=words):
        net.restart()


@pytest.mark.parametrize("value", [b"", b"\0" * 13, b"\0" * 13 + b"\x01", b"\xff" * 40])
def test_an_entry_that_makes_no_sense_stops_the_broker(net: Network, value: bytes) -> None:
    send(net.connect().sender("q"), b"a")
    store_of(net).records[ENTRY, 1, 1] = value
    with pytest.raises(StoreDamaged, match="entry 1 of 'q'"):
        net.restart()


def test_a_body_that_is_missing_stops_the_broker(net: Network) -> None:
    net.space.create("t", TopicPolicy())
    for container in ("a", "b"):
        subscribe(net.connect(container_id=container), "t", "s").close(closed=False)
    send(net.connect().sender("t"), b"m")
    store = store_of(net)
    (body,) = [key for key in store.records if key[0] == BODY]
    del store.records[body]
    with pytest.raises(StoreDamaged, match="missing"):
        net.restart()


def test_a_filter_that_cannot_be_read_stops_the_broker(net: Network) -> None:
    net.space.create("t", TopicPolicy())
    subscribe(net.connect(), "t", "s")
    store = store_of(net)
    (key,) = [key for key in store.records if key[0] == SUBSCRIPTION]
    fields = decode_map(store.records[key])
    store.records[key] = encode_map({**fields, "filters": {"jms-selector": "= ="}})
    with pytest.raises(StoreDamaged, match="subscription"):
        net.restart()


def test_settings_come_and_go_with_versions(net: Network) -> None:
    net.declare("q", QueuePolicy(max_length=5, groups=True))
    net.connect()
    store = store_of(net)
    fields = decode_map(store.records[NODE, 1, 0])
    policy = fields["policy"]
    assert isinstance(policy, dict)
    del policy["groups"]
    policy["colour"] = "red"
    store.records[NODE, 1, 0] = encode_map({**fields, "colour": "blue"})
    net.restart()
    assert net.queue("q").policy == QueuePolicy(max_length=5)


def test_identities_that_nobody_asks_for_are_dropped(net: Network) -> None:
    filled(net)
    store = store_of(net)
    fields = decode_map(store.records[NODE, 1, 0])
    store.records[NODE, 1, 0] = encode_map({**fields, "policy": {}})
    assert store.count(DUPLICATE) > 0
    net.restart()
    net.connect()
    assert store.count(DUPLICATE) == 0


def test_no_id_is_given_away_that_a_body_or_a_subscription_has(net: Network) -> None:
    topic = net.space.create("t", TopicPolicy())
    assert isinstance(topic, Topic)
    for name in ("one", "two"):
        topic.declare_subscription(name)
    net.connect()
    assert net.broker.agenda.changes.new_id() == 4
    net.restart()
    assert net.broker.agenda.changes.new_id() == 4
    send(net.connect().sender("t"), b"m")
    assert store_of(net).count(BODY) == 1
    body = max(key[1] for key in store_of(net).records)
    net.restart()
    assert net.broker.agenda.changes.new_id() == body + 1


def test_ids_go_on_behind_all_that_anything_has(net: Network) -> None:
    filled(net)
    net.space.create("t", TopicPolicy())
    subscribe(net.connect(), "t", "s")
    net.connect()
    highest = max(key[1] for key in store_of(net).records)
    net.restart()
    assert net.broker.agenda.changes.new_id() > highest


def test_recovering_twice_is_recovering_once(net: Network) -> None:
    filled(net)
    store = store_of(net)
    before = dict(store.records)
    for _ in range(3):
        # Killed before anything was written.
        net.clients.clear()
        net._start(None)
        store.open(Changes(), lambda: None)
    assert store.records == before
    net.restart()
    assert browse(net, "q") == [b"a", b"b"]
