"""What dead letters tell: annotations for clients of AMQP 1.0, headers for those of AMQP 0-9-1."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.message import restore
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_codec.scalars import Timestamp, UInt
from ferrymq_rabbitmq.amqp_0_9_1.conversion.from_0_9_1 import message_of
from ferrymq_rabbitmq.amqp_0_9_1.conversion.to_0_9_1 import Content, content_of
from ferrymq_rabbitmq.arguments import queue_policy
from ferrymq_rabbitmq.deaths import MAX_DEATHS, record_death
from ferrymq_rabbitmq.personality import RabbitmqPersonality
from ferrymq_types.messaging import Rejected
from ferrymq_types_0_9_1.basic import BasicProperties
from tests.broker.harness import Network


def network() -> Network:
    net = Network()
    net.personality = lambda: RabbitmqPersonality(net.space, net.broker, {}, Path())
    net.restart()
    personality = net.space.personality
    assert personality is not None
    personality.declare()
    return net


def declare(net: Network, name: str, **arguments: object) -> None:
    """Declare a queue whose arguments begin with ``x-``."""
    policy = queue_policy({f"x-{key.replace('_', '-')}": arguments[key] for key in arguments})
    assert isinstance(policy, QueuePolicy)
    net.declare(name, policy)


def publish(net: Network, queue: str, /, **properties: object) -> None:
    fields = BasicProperties(**properties)  # type: ignore[arg-type]
    net.broker.begin_pass(net.now)
    net.queue(queue).publish(message_of(fields.to_bytes(), b"x", "sales", "eu.fr", 1))
    net.broker.finish_pass()
    net.run()


def take(net: Network, queue: str) -> tuple[Content, dict[str, object]]:
    """The one message of a queue, and its headers."""
    receiver = net.connect().receiver(queue)
    receiver.credit(1)
    (delivery,) = receiver.deliveries
    receiver.close()
    content = content_of(restore(delivery.payload, 0, False, 0), queue, 0)
    return content, BasicProperties.from_bytes(content.properties).headers or {}


def reject(net: Network, queue: str) -> None:
    receiver = net.connect().receiver(queue)
    receiver.credit(1)
    receiver.settle(Rejected())
    receiver.close()


def test_a_rejected_message() -> None:
    net = network()
    declare(net, "orders", dead_letter_exchange="", dead_letter_routing_key="dead")
    net.declare("dead")
    publish(net, "orders", headers={"a": 1, "CC": ["other"], "x-death": "forged"})
    reject(net, "orders")
    content, headers = take(net, "dead")
    assert (content.exchange, content.routing_key) == ("", "dead")
    assert headers == {
        "a": 1,
        "x-death": [
            {
                "count": 1,
                "reason": "rejected",
                "queue": "orders",
                "time": datetime.fromtimestamp(net.wall // 1000, UTC),
                "exchange": "sales",
                "routing-keys": ["eu.fr", "other"],
            }
        ],
        "x-first-death-queue": "orders",
        "x-first-death-reason": "rejected",
        "x-first-death-exchange": "sales",
        "x-last-death-queue": "orders",
        "x-last-death-reason": "rejected",
        "x-last-death-exchange": "sales",
    }


def test_an_expired_message_comes_back_again_and_again() -> None:
    """The way of a retry: rejected to a queue that lets it expire, and back."""
    net = network()
    declare(net, "work", dead_letter_exchange="", dead_letter_routing_key="wait")
    declare(net, "wait", dead_letter_exchange="", dead_letter_routing_key="work", message_ttl=1000)
    publish(net, "work", expiration="60000")
    for _ in range(3):
        reject(net, "work")
        net.advance(2)
    content, headers = take(net, "work")
    assert BasicProperties.from_bytes(content.properties).expiration is None
    deaths = headers["x-death"]
    assert isinstance(deaths, list)
    assert [(death["queue"], death["reason"], death["count"]) for death in deaths] == [
        ("wait", "expired", 3),
        ("work", "rejected", 3),
    ]
    assert deaths[1]["original-expiration"] == "60000"
    assert "original-expiration" not in deaths[0]
    assert deaths[0]["exchange"] == "" and deaths[0]["routing-keys"] == ["wait"]
    assert headers["x-first-death-queue"] == "work"
    assert headers["x-last-death-queue"] == "wait"
    assert headers["x-last-death-reason"] == "expired"


def test_a_full_queue_and_the_exchange_of_its_dead_letters() -> None:
    net = network()
    declare(net, "small", max_length=1, dead_letter_exchange="amq.fanout")
    bind(net, "amq.fanout", "dead", "")
    publish(net, "small")
    publish(net, "small")
    content, headers = take(net, "dead")
    assert (content.exchange, content.routing_key) == ("amq.fanout", "eu.fr")
    assert headers["x-first-death-reason"] == "maxlen"


def bind(net: Network, exchange: str, queue: str, key: str) -> None:
    """Bind a new queue to one of RabbitMQ's exchanges."""
    net.declare(queue)
    node = net.space.find(f"/exchanges/{exchange}")
    assert isinstance(node, Exchange)
    node.bind(queue, key)


@pytest.mark.parametrize(
    ("arguments", "keys", "copies"),
    [
        ({}, ["eu.fr", "other"], ["other"]),
        ({"dead_letter_routing_key": "other"}, ["other"], None),
    ],
)
def test_a_new_routing_key_replaces_the_copies(
    arguments: dict[str, object], keys: list[str], copies: object
) -> None:
    net = network()
    declare(net, "orders", dead_letter_exchange="amq.direct", **arguments)
    for bound in ("eu.fr", "other"):
        bind(net, "amq.direct", bound, bound)
    publish(net, "orders", headers={"CC": ["other"]})
    reject(net, "orders")
    assert [name for name in ("eu.fr", "other") if net.queue(name).available] == keys
    content, headers = take(net, keys[0])
    assert (content.exchange, content.routing_key) == ("amq.direct", keys[0])
    assert headers.get("CC") == copies
    deaths = headers["x-death"]
    assert isinstance(deaths, list) and deaths[0]["routing-keys"] == ["eu.fr", "other"]


def test_the_reason_of_too_many_deliveries() -> None:
    annotations = record(reason="delivery-limit")
    assert annotations["x-last-death-reason"] == "delivery_limit"


def record(count: int = 1, reason: str = "rejected", **more: object) -> dict[str | int, object]:
    net = Network()
    net.declare("q", QueuePolicy())
    annotations: dict[str | int, object] = {
        "x-opt-deadletter-source": "q",
        "x-opt-deadletter-reason": reason,
        "x-opt-deadletter-time": Timestamp(5),
        "x-opt-deadletter-count": UInt(count),
        **{name.replace("_", "-"): value for name, value in more.items()},
    }
    record_death(net.space, annotations)
    return annotations


def test_deaths_are_bounded() -> None:
    before = [{"queue": str(number), "reason": "expired"} for number in range(MAX_DEATHS)]
    deaths = record(count=70, x_death=before)["x-death"]
    assert isinstance(deaths, list)
    assert len(deaths) == MAX_DEATHS
    assert deaths[0]["queue"] == "q" and deaths[-1]["queue"] == str(MAX_DEATHS - 2)
    assert len(before) == MAX_DEATHS


def test_forged_deaths_do_no_harm() -> None:
    wrong: list[object] = [5, [5], [{"queue": "q", "reason": "rejected", "count": "many"}], {}]
    for forged in wrong:
        deaths = record(count=2, x_death=forged)["x-death"]
        assert isinstance(deaths, list) and deaths[0]["count"] == 1
