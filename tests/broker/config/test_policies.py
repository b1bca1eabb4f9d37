"""From settings to policies: those that are shared, those of management, and the way back."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq_broker.config.apply.explain import friendly_settings
from ferrymq_broker.config.nodes import KINDS, SETTINGS, policy_attributes
from ferrymq_broker.config.policy_resolution import resolve_policy
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.management.policies import node_policy
from ferrymq_broker.values.policy import (
    ExchangePolicy,
    NodePolicy,
    QueuePolicy,
    StreamPolicy,
    TopicPolicy,
)
from ferrymq_codec.scalars import Symbol, UInt
from tests.broker.config.files import load

DEFAULTS: dict[str, NodePolicy] = {
    "queue": QueuePolicy(),
    "topic": TopicPolicy(),
    "stream": StreamPolicy(),
    "exchange": ExchangePolicy(),
}

NUMBERS = st.integers(0, 2**40)
FLAGS = st.booleans()
ADDRESSES = st.sampled_from(["", "dead", "late"])
QUEUES = st.builds(
    QueuePolicy,
    priorities=st.integers(1, 10),
    max_length=NUMBERS,
    max_bytes=NUMBERS,
    overflow=st.sampled_from(["reject", "drop-head", "block"]),
    message_ttl=NUMBERS,
    lock_duration=NUMBERS,
    deferral=FLAGS,
    return_rejected=st.booleans(),
    delivery_limit=st.integers(0, 1000),
    dead_letter=ADDRESSES,
    expired=ADDRESSES,
    single_active=FLAGS,
    groups=FLAGS,
    duplicate_window=NUMBERS,
    duplicate_limit=st.integers(1, 10**8),
    auto_delete=st.integers(-1, 2**40),
    max_consumers=NUMBERS,
    durable=FLAGS,
)
POLICIES = st.one_of(
    QUEUES,
    st.builds(
        TopicPolicy,
        subscription=QUEUES,
        max_subscriptions=NUMBERS,
        auto_delete=st.integers(-1, 2**40),
        durable=FLAGS,
    ),
    st.builds(
        StreamPolicy,
        partitions=st.integers(1, 1024),
        max_bytes=NUMBERS,
        max_age=NUMBERS,
        max_records=NUMBERS,
        segment_bytes=st.integers(1024, 2**40),
        durable=st.just(True),
        capture=FLAGS,
    ),
    st.builds(StreamPolicy, durable=FLAGS),
    st.builds(
        ExchangePolicy,
        type=st.sampled_from(["direct", "topic", "fanout", "headers"]),
        alternate=ADDRESSES,
        auto_delete=st.integers(-1, 2**40),
        durable=FLAGS,
    ),
)


def kind_of(policy: NodePolicy) -> str:
    return next(kind for kind in KINDS if type(DEFAULTS[kind]) is type(policy))


@pytest.mark.parametrize("kind", KINDS)
def test_what_nobody_says_is_as_the_policy_has_it(kind: str) -> None:
    assert node_policy(kind, {}) == DEFAULTS[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_every_setting_of_a_policy_can_be_said(kind: str) -> None:
    assert len(SETTINGS[kind].model_fields) == len(fields(DEFAULTS[kind]))
    assert len(policy_attributes(DEFAULTS[kind])) == len(fields(DEFAULTS[kind]))


@given(POLICIES)
def test_attributes_make_the_policy_they_come_from(policy: NodePolicy) -> None:
    attributes = policy_attributes(policy)
    assert node_policy(kind_of(policy), attributes) == policy
    assert not any("_" in key for key in attributes)


@given(POLICIES)
def test_what_is_printed_makes_the_policy_again(policy: NodePolicy) -> None:
    """What is not printed is at its default; durations and sizes are exact."""
    attributes: dict[str, object] = {}
    subscription: dict[str, object] = {}
    usual = policy_attributes(DEFAULTS[kind_of(policy)])
    for key, text in friendly_settings(policy).items():
        table = attributes
        default = usual.get(key)
        if key.startswith("subscription."):
            table, key = subscription, key.removeprefix("subscription.")
            default = policy_attributes(QueuePolicy())[key]
        value: object = text
        if isinstance(default, bool):
            value = text == "true"
        elif isinstance(default, int) and (text == "never" or text.isdigit()):
            value = -1 if text == "never" else int(text)
        table[key] = value
    if subscription:
        attributes["subscription"] = subscription
    assert node_policy(kind_of(policy), attributes) == policy


def test_values_as_they_come_over_the_wire() -> None:
    policy = node_policy(
        "queue",
        {Symbol("max-length"): UInt(7), "overflow": Symbol("block"), "message-ttl": UInt(250)},
    )
    assert policy == QueuePolicy(max_length=7, overflow="block", message_ttl=250)
    assert isinstance(policy, QueuePolicy)
    assert type(policy.max_length) is int and type(policy.overflow) is str


def test_text_with_a_unit_is_good_for_management_too() -> None:
    policy = node_policy("queue", {"max-bytes": "10KiB", "message-ttl": "2s", "auto-delete": False})
    assert policy == QueuePolicy(max_bytes=10240, message_ttl=2000)


@pytest.mark.parametrize(
    ("kind", "attributes", "reason"),
    [
        ("queue", {"max-lenght": 1}, "unknown key 'max-lenght'; did you mean 'max-length'?"),
        ("queue", {"max_length": 1}, "unknown key 'max_length'; did you mean 'max-length'?"),
        ("queue", {"max-length": -1}, "max-length: Input should be greater than or equal to 0"),
        ("queue", {"max-length": "7"}, "max-length: Input should be a valid integer"),
        ("queue", {"max-length": None}, "max-length: Input should be a valid integer"),
        ("queue", {"message-ttl": -1}, "message-ttl: it cannot be negative"),
        ("queue", {"auto-delete": -2}, "auto-delete: it cannot be negative"),
        ("queue", {"overflow": "explode"}, "overflow: Input should be 'reject', "),
        ("queue", {"overflow": "dead-letter"}, "overflow: dead-lettering needs"),
        ("queue", {"target-latency": 5}, "target-latency: it holds back credit"),
        ("queue", {5: 1}, "unknown key '5'"),
        ("stream", {"max-length": 1}, "unknown key 'max-length'"),
        ("topic", {"subscription": 5}, "subscription: "),
        ("topic", {"subscription": {"grups": True}}, "unknown key 'subscription.grups'; did you"),
        ("topic", {"subscription": {"groups": 1}}, "subscription.groups: Input should be a valid"),
        (
            "topic",
            {"subscription": {"groups": True, "last-value-key": "x"}},
            "subscription.last-value-key: a queue of last values",
        ),
        ("exchange", {"routing": "loop"}, "routing: Input should be 'direct', "),
        ("table", {}, "'table' is none of queue, topic, stream, exchange"),
    ],
)
def test_a_bad_attribute_is_named(kind: str, attributes: dict[str, object], reason: str) -> None:
    with pytest.raises(BrokerError) as caught:
        node_policy(kind, attributes)
    assert caught.value.condition == "amqp:invalid-field"
    assert caught.value.description.startswith(reason)


def test_a_node_has_the_settings_of_its_policy_but_for_its_own(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        """
        [policies.bounded]
        max-length = 10
        overflow = "block"
        durable = false

        [[queue]]
        name = "a"
        policy = "bounded"
        overflow = "reject"

        [[topic]]
        name = "t"
        policy = "plain"
        [topic.subscription]
        policy = "bounded"
        max-length = 0

        [policies.plain]
        auto-delete = "1m"

        [[queue]]
        name = "b"
        """,
    )
    made = [resolve_policy(kind, entry, config.policies) for kind, _, entry in config.declared()]
    assert made == [
        QueuePolicy(max_length=10, durable=False),
        QueuePolicy(),
        TopicPolicy(subscription=QueuePolicy(overflow="block", durable=False), auto_delete=60_000),
    ]
