"""The factory that makes nodes from policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.node import PERMANENT
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.values.policy import (
    ExchangePolicy,
    NodePolicy,
    QueuePolicy,
    StreamPolicy,
    TopicPolicy,
)

if TYPE_CHECKING:
    from ferrymq_broker.nodes.node import Node, Space


def build(space: Space, address: str, policy: NodePolicy, lifetime: i64 = PERMANENT) -> Node:
    """Make a node in `space`, without adding it to the addresses."""
    if isinstance(policy, QueuePolicy):
        return Queue(address, space, policy, lifetime)
    if isinstance(policy, StreamPolicy):
        return Stream(address, space, policy, lifetime)
    if isinstance(policy, TopicPolicy):
        return Topic(address, space, policy, lifetime)
    if isinstance(policy, ExchangePolicy):
        return Exchange(address, space, policy, lifetime)
    raise BrokerError(
        "amqp:not-implemented", f"there is no kind of node for the policy {type(policy).__name__}"
    )
