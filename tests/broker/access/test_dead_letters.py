"""Dead letters: to read them takes a right of its own, wherever they go."""

from __future__ import annotations

import pytest

from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.values.policy import QueuePolicy, TopicPolicy
from ferrymq_types.messaging import Rejected
from tests.broker.access.guarded import is_open, lacks, user
from tests.broker.harness import Network
from tests.broker.lasting import lasting_source

RULES = """
[[queue]]
name = "orders"
dead-letter = "tot"
expired = "late"

[[queue]]
name = "dead"

[[queue]]
name = "late"

[[queue]]
pattern = "jobs.*"
dead-letter = "failed"

[[stream]]
name = "history"

[[alias]]
name = "tot"
to = "dead"

[[rule]]
who = "user:reader"
may = ["receive", "browse", "create", "send"]
where = "*"

[[rule]]
who = "user:doctor"
may = "dead-letter"
where = "*"

[[rule]]
who = "user:maker"
may = "*"
where = "jobs.*"
"""


def is_box(net: Network, address: str) -> bool:
    """Whether reading there takes the right of its own, and only that."""
    readers = [
        user(net, "reader").receiver(address, mode=mode, credit=0) for mode in ("move", "copy")
    ]
    for reader in readers:
        assert is_open(reader) or lacks(reader) == f"dead-letter at '{address}'"
    doctors = [user(net, "doctor").receiver(address, mode=mode) for mode in ("move", "copy")]
    assert is_open(readers[0]) == is_open(readers[1]) != is_open(doctors[0])
    assert is_open(doctors[0]) == is_open(doctors[1])
    return is_open(doctors[0])


def test_a_queue_of_dead_letters_is_no_queue_like_others(net: Network) -> None:
    assert [is_box(net, name) for name in ("dead", "tot", "late", "orders")] == [
        True,
        True,
        True,
        False,
    ]
    assert is_open(user(net, "reader").sender("dead"))


def test_letters_get_where_their_reader_may_read_them(net: Network) -> None:
    reader = user(net, "reader")
    reader.sender("orders").send(b"bad")
    receiver = reader.receiver("orders", credit=1)
    receiver.settle(Rejected())
    assert user(net, "doctor").receiver("dead", credit=1).bodies() == [b"bad"]


def test_a_pattern_names_it_before_there_is_a_queue(net: Network) -> None:
    assert lacks(user(net, "reader").receiver("failed")) == "dead-letter at 'failed'"


def test_policies_come_and_change_and_go(net: Network) -> None:
    net.declare("box")
    assert not is_box(net, "box")
    one = net.declare("one", QueuePolicy(dead_letter="box"))
    two = net.declare("two", QueuePolicy(expired="box", dead_letter="box"))
    assert is_box(net, "box")
    one.change_policy(QueuePolicy())
    assert is_box(net, "box")
    two.change_policy(QueuePolicy(dead_letter="box"))
    assert is_box(net, "box")
    net.space.remove(two)
    assert not is_box(net, "box")
    one.change_policy(QueuePolicy(expired="box"))
    assert is_box(net, "box")


def test_aliases_come_and_change_and_go(net: Network) -> None:
    net.declare("box")
    net.space.set_alias("tot", "box")
    assert is_box(net, "box") and not is_box(net, "dead")
    net.space.drop_alias("tot")
    assert not is_box(net, "box")
    net.space.set_alias("other", "box")
    assert not is_box(net, "box")
    net.declare("one", QueuePolicy(dead_letter="other"))
    assert is_box(net, "box")


def test_a_part_of_a_node_makes_it_one(net: Network) -> None:
    net.declare("one", QueuePolicy(dead_letter="history::0"))
    assert lacks(user(net, "reader").receiver("history::0")) == "dead-letter at 'history::0'"
    assert lacks(user(net, "reader").receiver("history")) == "dead-letter at 'history'"
    assert is_open(user(net, "doctor").receiver("history"))


def test_subscriptions_have_letters_too(net: Network) -> None:
    net.declare("box")
    topic = net.space.create("t", TopicPolicy(subscription=QueuePolicy(dead_letter="box")))
    assert isinstance(topic, Topic)
    assert not is_box(net, "box")
    receiver = user(net, "reader").receiver("t")
    assert is_box(net, "box")
    receiver.close()
    assert not is_box(net, "box")


def test_a_queue_that_could_not_be_made_names_nothing(net: Network) -> None:
    net.declare("box")
    net.declare("one")
    with pytest.raises(Exception, match="exists already"):
        net.declare("one", QueuePolicy(dead_letter="box"))
    assert not is_box(net, "box")


def test_who_may_do_nothing_there_does_not_learn_that_it_is_one(net: Network) -> None:
    maker = user(net, "maker")
    for name in ("dead", "late", "orders", "missing"):
        assert lacks(maker.receiver(name)) == f"receive at '{name}'"
        assert lacks(maker.receiver(name, mode="copy")) == f"browse at '{name}'"


def test_what_a_queue_named_is_known_when_the_broker_has_started_again(net: Network) -> None:
    """Queues that are restored name their boxes as those do that are made."""
    net.declare("box")
    topic = net.space.create("t", TopicPolicy())
    assert isinstance(topic, Topic)
    reader = user(net, "reader", container_id="c")
    reader.receiver(
        "t",
        name="s",
        source=lasting_source("t"),
    )
    (subscription,) = topic.subscriptions()
    topic.change_subscription(subscription, QueuePolicy(dead_letter="box"))
    assert is_box(net, "box")
    topic.delete_subscription(subscription.name)
    assert not is_box(net, "box")
