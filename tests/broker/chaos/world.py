"""Nodes of all kinds with random policies."""

from __future__ import annotations

from random import Random

from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.values.policy import (
    EXCHANGE_TYPES,
    OVERFLOWS,
    ExchangePolicy,
    QueuePolicy,
    StreamPolicy,
    TopicPolicy,
)
from tests.broker.harness import Network

QUEUES = tuple(f"q{n}" for n in range(6))
TOPICS = ("t0", "t1")
STREAMS = ("s0", "s1")
EXCHANGES = ("x0", "x1")
# Topics and exchanges make several messages of one.
KEYS = ("", "red", "red.hot", "blue")
ALIASES = ("a0", "a1")


def random_policy(random: Random, stored: bool = False) -> QueuePolicy:
    """Any combination of settings, most of them off. `stored` is whether it outlives the broker."""

    def sometimes(*values: int) -> int:
        return random.choice(values) if random.random() < 0.3 else 0

    dead_letter = random.choice(("", *QUEUES))
    overflow = random.choice(OVERFLOWS)
    groups = random.random() < 0.25
    alone = random.choice((0, 0, 0, 0, 0, 0, 1, 1, 2))
    if overflow in ("dead-letter", "reject-dead-letter") and not dead_letter:
        overflow = "drop-head"
    return QueuePolicy(
        priorities=random.choice((1, 2, 3, 10, 10)),
        max_length=sometimes(1, 2, 3, 5, 10),
        max_bytes=sometimes(150, 400, 1500),
        overflow=overflow,
        message_ttl=sometimes(1, 500, 3000, 10_000),
        delivery_limit=sometimes(1, 2, 4),
        dead_letter=dead_letter,
        expired=random.choice(("", "", *QUEUES)),
        single_active=alone == 1,
        exclusive=alone == 2,
        groups=groups,
        last_value_key="key" if not groups and random.random() < 0.2 else "",
        duplicate_window=sometimes(1000, 100_000),
        duplicate_limit=random.choice((1, 5, 100)),
        auto_delete=random.choice((0, 1000)) if random.random() < 0.1 else -1,
        max_consumers=sometimes(1, 3) if alone == 0 else 0,
        durable=stored,
        persist=stored and random.random() < 0.1,
    )


def stream_policy(random: Random, partitions: int) -> StreamPolicy:
    """Any combination of limits."""
    return StreamPolicy(
        partitions=partitions,
        max_records=random.choice((0, 0, 5, 50)),
        max_age=random.choice((0, 0, 2000)),
        max_bytes=random.choice((0, 0, 500)),
        segment_bytes=random.choice((1, 200, 1024, 1024 * 1024)),
    )


def build(net: Network, random: Random, unique: bool, stored: bool) -> None:
    """All nodes; `unique` leaves out whatever puts a message into several places."""
    for name in QUEUES:
        net.space.create(name, random_policy(random, stored))
    if unique:
        return
    for name in TOPICS:
        subscription = random_policy(random, stored)
        net.space.create(
            name, TopicPolicy(subscription=subscription, max_subscriptions=random.choice((0, 3)))
        )
    for name in STREAMS:
        net.space.create(name, stream_policy(random, random.choice((1, 3))))
    for name in EXCHANGES:
        exchange = net.space.create(
            name,
            ExchangePolicy(
                type=random.choice(EXCHANGE_TYPES), alternate=random.choice(("", *QUEUES, *TOPICS))
            ),
        )
        assert isinstance(exchange, Exchange)
        for _ in range(random.randrange(4)):
            names = [*QUEUES, *TOPICS, *STREAMS]
            if name != EXCHANGES[0]:
                names.append(EXCHANGES[0])
            exchange.bind(random.choice(names), random.choice(KEYS))
