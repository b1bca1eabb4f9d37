"""Sub-queues: queues that belong to another queue or to a subscription."""

from __future__ import annotations

import tomllib

import pytest

from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.config import Config
from ferrymq_broker.config.apply.explain import explain
from ferrymq_broker.config.apply.explain_access import explain_access
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.management.setup import install
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.values.policy import QueuePolicy, TopicPolicy
from ferrymq_types.messaging import Rejected
from tests.broker.access.guarded import guarded, is_open, lacks, user
from tests.broker.harness import Network
from tests.broker.lifecycle.letters import bodies, browse, death, drain
from tests.broker.management.asker import Asker
from tests.broker.recovery.kit import send as send_durable
from tests.broker.recovery.kit import stored, stored_network
from tests.broker.topics.test_rules import asker_of

DEAD = "$Dead"
OWNER = QueuePolicy(
    sub_queues=(DEAD, "$Lost/$Dead"), dead_letter=f"/{DEAD}", expired="/$Lost/$Dead", max_length=3
)


def bury(net: Network, source: str, target: str, *messages: bytes) -> None:
    """Send messages, and let a consumer reject them."""
    client = net.connect()
    sender = client.sender(target)
    for body in messages:
        send_durable(sender, body)
    receiver = client.receiver(source, credit=len(messages))
    for delivery in receiver.take():
        receiver.settle(Rejected(), delivery)
    client.close()


def test_dead_letters_go_to_the_sub_queue(net: Network) -> None:
    net.declare("orders", OWNER)
    bury(net, "orders", "orders", b"a")
    (dead,) = drain(net, "orders/$Dead")
    assert death(dead)["source"] == "orders"
    sender = net.connect().sender("orders")
    send_durable(sender, b"late", ttl=1000)
    net.advance(2)
    assert bodies(net, "orders/$Lost/$Dead") == [b"late"]


def test_a_topic_makes_them_for_its_subscriptions(net: Network) -> None:
    topic = net.space.create("news", TopicPolicy(subscription=OWNER))
    assert isinstance(topic, Topic)
    topic.declare_subscription("audit")
    topic.declare_subscription("other")
    bury(net, "news::audit", "news", b"a")
    assert bodies(net, "news::audit/$Dead") == [b"a"]
    assert bodies(net, "news::other/$Dead") == []
    topic.delete_subscription("audit")
    assert "news::audit/$Dead" not in net.space.nodes
    assert "news::other/$Dead" in net.space.nodes


def test_its_limits_are_those_of_its_owner_for_its_own_messages(net: Network) -> None:
    net.declare("orders", OWNER)
    bury(net, "orders", "orders", b"a", b"b", b"c")
    bury(net, "orders", "orders", b"d", b"e")
    assert browse(net, "orders/$Dead") == [b"a", b"b", b"c"]
    assert net.queue("orders").describe()["dropped"] == 2


def test_clients_send_nothing_there(net: Network) -> None:
    net.declare("orders", OWNER)
    sender = net.connect().sender("orders/$Dead")
    assert sender.error is not None and sender.error.condition == "amqp:not-allowed"


def test_it_ends_with_its_owner(net: Network) -> None:
    net.declare("orders", OWNER)
    receiver = net.connect().receiver("orders/$Dead", credit=1)
    before = len(net.space.nodes)
    net.space.remove(net.queue("orders"))
    net.finish()
    assert receiver.error is not None and receiver.error.condition == "amqp:resource-deleted"
    assert len(net.space.nodes) == before - 3 and net.space.owned == 0


def test_it_does_not_count_as_a_node_and_its_name_must_be_free() -> None:
    net = Network(max_nodes=3, memory=True)
    net.declare("a", OWNER)
    net.declare("b/$Dead")
    with pytest.raises(BrokerError, match="exists already"):
        net.declare("b", OWNER)
    assert "b" not in net.space.nodes
    net.space.remove(net.queue("b/$Dead"))
    net.declare("b", OWNER)
    net.declare("c", OWNER)
    with pytest.raises(BrokerError, match="which is the limit"):
        net.declare("d", OWNER)


def test_a_link_to_it_makes_its_owner_if_that_is_declared(net: Network) -> None:
    net.restart(Config.model_validate(tomllib.loads("""
                [nodes]
                auto-create = false
                [[queue]]
                pattern = "jobs.*"
                sub-queues = ["$Dead"]
                dead-letter = "/$Dead"
                """)))
    client = net.connect()
    assert is_open(client.receiver("jobs.1/$Dead", credit=1))
    assert "jobs.1" in net.space.nodes
    assert not is_open(client.receiver("other/$Dead", credit=1))


def test_a_restart_keeps_it_with_its_messages() -> None:
    net = stored_network()
    topic = net.space.create("news", TopicPolicy(subscription=OWNER))
    assert isinstance(topic, Topic)
    topic.declare_subscription("audit")
    net.declare("orders", OWNER)
    bury(net, "orders", "orders", b"a")
    bury(net, "news::audit", "news", b"b")
    net.restart()
    assert net.space.owned == 4
    assert browse(net, "orders/$Dead") == [b"a"]
    assert browse(net, "news::audit/$Dead") == [b"b"]
    bury(net, "orders", "orders", b"c")
    net.restart()
    assert browse(net, "orders/$Dead") == [b"a", b"c"]
    net.space.remove(net.queue("orders"))
    net.space.remove(net.space.nodes["news"])
    net.finish()
    net.restart()
    assert net.space.owned == 0 and not stored(net)


def test_another_policy_makes_and_removes_them() -> None:
    net = stored_network()
    net.declare("orders")
    asker = asker_of(net)
    settings = {"sub-queues": ["$Dead"], "dead-letter": "/$Dead"}
    assert asker.ask("UPDATE", "queue", "orders", settings).status == 200
    bury(net, "orders", "orders", b"a")
    assert asker.ask("UPDATE", "queue", "orders", {"max-length": 7}).status == 200
    dead = asker.ask("READ", "queue", "orders/$Dead").map()
    assert (dead["owner"], dead["messages"], dead["max-length"]) == ("orders", 1, 7)
    assert asker.ask("READ", "queue", "orders").map()["owner"] == ""
    net.restart()
    asker = asker_of(net)
    assert browse(net, "orders/$Dead") == [b"a"]
    gone = {"sub-queues": [], "dead-letter": ""}
    assert asker.ask("UPDATE", "queue", "orders", gone).status == 200
    assert "orders/$Dead" not in net.space.nodes


def test_management_purges_it_and_does_not_delete_it(net: Network) -> None:
    net.declare("orders", OWNER)
    bury(net, "orders", "orders", b"a", b"b")
    asker = asker_of(net)
    assert asker.ask("DELETE", "queue", "orders/$Dead").status == 409
    assert asker.ask("UPDATE", "queue", "orders/$Dead", {"max-length": 1}).status == 409
    assert asker.ask("PURGE", "queue", "orders/$Dead").map() == {"count": 2}


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"sub-queues": ["/x"]}, "sub-queues"),
        ({"sub-queues": ["a::b"]}, "sub-queues"),
        ({"sub-queues": [str(n) for n in range(9)]}, "sub-queues"),
    ],
)
def test_names_that_cannot_be(net: Network, settings: dict[str, object], key: str) -> None:
    answer = asker_of(net).ask("CREATE", "queue", "orders", settings)
    assert answer.status == 400 and key in str(answer.description)


RULES = """
[[queue]]
name = "orders"
sub-queues = ["$Dead"]
dead-letter = "/$Dead"

[[queue]]
pattern = "jobs.*"
sub-queues = ["$Dead"]
dead-letter = "/$Dead"

[[rule]]
who = "user:doctor"
may = ["dead-letter", "create"]
where = ["orders", "jobs.*"]

[[rule]]
who = "user:reader"
may = ["receive", "browse", "create"]
where = "*"

[[rule]]
who = ["user:doctor", "user:reader"]
may = "create"
where = "dynamic.*"

[[rule]]
who = "user:stranger"
may = "*"
where = "orders/*"
"""


@pytest.mark.parametrize("name", ["orders", "jobs.1"])
def test_reading_it_takes_the_right_to_dead_letters_at_its_owner(name: str) -> None:
    net = guarded(RULES)
    address = f"{name}/$Dead"
    assert lacks(user(net, "reader").receiver(address)) == f"dead-letter at {address!r}"
    assert is_open(user(net, "doctor").receiver(address))
    assert lacks(user(net, "stranger").receiver(address)) == f"receive at {address!r}"
    assert is_open(user(net, "reader").receiver(name))


def test_rights_at_a_subscription_count_for_its_sub_queues() -> None:
    net = guarded("""
        [[topic]]
        name = "news"
        [topic.subscription]
        sub-queues = ["$Dead"]
        dead-letter = "/$Dead"
        [[subscription]]
        topic = "news"
        name = "audit"
        [[rule]]
        who = "user:doctor"
        may = ["dead-letter"]
        where = "news::audit"
        [[rule]]
        who = "user:reader"
        may = ["receive", "browse"]
        where = "news"
        """)
    address = "news::audit/$Dead"
    doctor, reader = user(net, "doctor"), user(net, "reader")
    assert is_open(doctor.receiver(address)) and is_open(doctor.receiver(address, mode="copy"))
    assert lacks(reader.receiver(address)) == f"dead-letter at {address!r}"
    assert is_open(reader.receiver("news::audit"))


def test_management_judges_it_by_its_owner() -> None:
    net = guarded(RULES)
    install(net.space, net.broker)
    doctor, reader = (Asker(net, user(net, name)) for name in ("doctor", "reader"))
    assert doctor.ask("PEEK", "queue", "orders/$Dead").status == 200
    assert reader.ask("PEEK", "queue", "orders/$Dead").status == 403
    assert doctor.ask("PURGE", "queue", "orders/$Dead").status == 403
    assert [row["name"] for row in doctor.query("queue", attributeNames=["name"])] == [
        "orders",
        "orders/$Dead",
    ]


def test_check_config_explains_it() -> None:
    config = Config.model_validate(tomllib.loads(RULES + """
            [[topic]]
            name = "news"
            [topic.subscription]
            sub-queues = ["$Dead"]
            [security.users]
            doctor = "a password"
            """))
    doctor = UserIdentity("doctor")
    for address, owner, how in (
        ("orders/$Dead", "orders", "declared"),
        ("jobs.7/$Dead", "jobs.7", "pattern"),
        ("news::audit/$Dead", "news::audit", "declared"),
    ):
        found = explain(config, address)
        assert (found.node, found.owner, found.found) == (address, owner, how)
        assert isinstance(found.policy, QueuePolicy)
        access = explain_access(config, address, doctor)
        given = {each.right for each in access.verdicts if each.given}
        assert given == (set() if "news" in address else {"dead-letter", "create"})
        assert access.notes[-1].startswith("the node gets dead letters")
    assert explain(config, "orders/$Other").owner == ""
