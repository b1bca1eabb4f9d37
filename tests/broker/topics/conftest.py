"""A topic, which most of these tests need."""

from __future__ import annotations

import pytest

from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.values.policy import TopicPolicy
from tests.broker.harness import Network


@pytest.fixture
def topic(net: Network) -> Topic:
    topic = net.space.create("news", TopicPolicy())
    assert isinstance(topic, Topic)
    return topic
