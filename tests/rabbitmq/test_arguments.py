"""Arguments of queues and exchanges as policies."""

from __future__ import annotations

import re

import pytest

from ferrymq_broker.values.policy import QueuePolicy, StreamPolicy
from ferrymq_rabbitmq.arguments import (
    ArgumentError,
    arguments_of,
    exchange_policy,
    queue_policy,
    type_of,
)


def test_a_classic_queue() -> None:
    arguments = {
        "x-message-ttl": 60_000,
        "x-expires": 1_800_000,
        "x-max-length": 10,
        "x-max-length-bytes": 1000,
        "x-overflow": "reject-publish",
        "x-dead-letter-exchange": "dlx",
        "x-dead-letter-routing-key": "late",
        "x-single-active-consumer": True,
        "x-max-priority": 5,
    }
    policy = queue_policy(arguments)
    assert isinstance(policy, QueuePolicy)
    assert (policy.message_ttl, policy.auto_delete, policy.auto_delete_when) == (
        60_000,
        1_800_000,
        "unconsumed",
    )
    assert (policy.max_length, policy.max_bytes, policy.overflow) == (10, 1000, "reject")
    assert policy.dead_letter == "/exchanges/dlx::late"
    assert (policy.single_active, policy.priorities) == (True, 10)
    assert (policy.durable, policy.persist, policy.delivery_limit) == (True, False, 0)
    assert arguments_of(policy.labels) == arguments
    assert type_of(policy) == "classic"


@pytest.mark.parametrize(
    ("limit", "expected"), [(None, 20), (5, 5), (0, -1), (-1, 0)], ids=["default", "5", "0", "-1"]
)
def test_a_quorum_queue_has_a_delivery_limit(limit: int | None, expected: int) -> None:
    more = {} if limit is None else {"x-delivery-limit": limit}
    policy = queue_policy({"x-queue-type": "quorum", **more})
    assert isinstance(policy, QueuePolicy)
    assert (policy.delivery_limit, policy.persist, policy.priorities) == (expected, True, 2)
    assert type_of(policy) == "quorum"


def test_a_stream() -> None:
    policy = queue_policy({"x-queue-type": "stream", "x-max-age": "7D", "x-max-length-bytes": 5000})
    assert isinstance(policy, StreamPolicy)
    assert (policy.max_age, policy.max_bytes) == (7 * 86_400_000, 5000)
    assert type_of(policy) == "stream"


def test_refused_messages_go_to_the_dead_letter_exchange() -> None:
    """The overflow reject-publish-dlx; without such an exchange it is reject-publish."""
    arguments = {"x-overflow": "reject-publish-dlx", "x-dead-letter-exchange": "dlx"}
    policy = queue_policy(arguments)
    assert isinstance(policy, QueuePolicy)
    assert (policy.overflow, policy.dead_letter) == ("reject-dead-letter", "/exchanges/dlx")
    alone = queue_policy({"x-overflow": "reject-publish-dlx"})
    assert isinstance(alone, QueuePolicy) and alone.overflow == "reject"


def test_the_oldest_messages_become_dead_letters() -> None:
    """The overflow drop-head with a dead-letter exchange."""
    policy = queue_policy({"x-max-length": 1, "x-dead-letter-exchange": "dlx"})
    assert isinstance(policy, QueuePolicy)
    assert (policy.overflow, policy.dead_letter) == ("dead-letter", "/exchanges/dlx")
    policy = queue_policy({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "retry"})
    assert isinstance(policy, QueuePolicy)
    assert policy.dead_letter == "retry"


def test_an_exclusive_queue_is_transient() -> None:
    policy = queue_policy({}, durable=True, exclusive=True, auto_delete=True)
    assert (policy.durable, isinstance(policy, QueuePolicy) and policy.auto_delete) == (False, 0)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"x-queue-type": "ring"}, "x-queue-type: 'ring' is none of"),
        ({"x-max-length": "10"}, "x-max-length: a number is needed, not '10'"),
        ({"x-max-length": 0}, "x-max-length: a queue without room is of no use"),
        ({"x-message-ttl": -1}, "x-message-ttl: -1 is less than 0"),
        ({"x-expires": 0}, "x-expires: 0 is less than 1"),
        ({"x-overflow": "reject-other"}, "x-overflow: 'reject-other' is none of"),
        ({"x-dead-letter-routing-key": "k"}, "needs x-dead-letter-exchange"),
        ({"x-dead-letter-exchange": ""}, "the default exchange needs x-dead-letter-routing-key"),
        ({"x-single-active-consumer": 1}, "x-single-active-consumer: a boolean is needed"),
        ({"x-max-priority": 256}, "x-max-priority: 256 is not between 1 and 255"),
        ({"x-queue-type": "quorum", "x-max-priority": 5}, "type quorum has no such argument"),
        ({"x-delivery-limit": 5}, "type classic has no such argument"),
        ({"x-queue-type": "stream", "x-max-age": "7 days"}, "x-max-age: '7 days' is no number"),
        ({"x-consumer-timeout": 1}, "x-consumer-timeout: queues cannot do this here"),
        ({"x-queue-mode": {"a": 1}}, "x-queue-mode: dict is no type of an argument"),
    ],
)
def test_what_a_queue_cannot_have(arguments: dict[str, object], text: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(text)):
        queue_policy(arguments)


def test_arguments_that_rabbitmq_does_not_know_have_no_effect() -> None:
    policy = queue_policy({"x-mine": 1, "owner": "sales"})
    assert (policy.max_length, policy.labels) == (0, ('owner="sales"', "x-mine=1"))


@pytest.mark.parametrize("type", ["quorum", "stream"])
@pytest.mark.parametrize(
    "flag", [{"durable": False}, {"exclusive": True}, {"auto_delete": True}], ids=str
)
def test_flags_of_replicated_queues(type: str, flag: dict[str, bool]) -> None:
    with pytest.raises(ArgumentError, match=f"a queue of the type {type}"):
        queue_policy({"x-queue-type": type}, **flag)


def test_exchanges() -> None:
    policy = exchange_policy("topic", {"alternate-exchange": "odd"}, auto_delete=True)
    assert (policy.type, policy.alternate, policy.auto_delete) == ("topic", "/exchanges/odd", 0)
    with pytest.raises(ArgumentError, match="type: 'x-delayed' is none of"):
        exchange_policy("x-delayed", {})
    with pytest.raises(ArgumentError, match="x-delayed-type: exchanges have no such argument"):
        exchange_policy("direct", {"x-delayed-type": "direct"})
