"""Figures of many nodes are read, and written, a few nodes in each pass of the event loop."""

from __future__ import annotations

import re

from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from ferrymq_broker.monitoring.node_metrics import NodeMetrics
from ferrymq_broker.monitoring.node_totals import (
    AT_ONCE,
    BY_KIND,
    COUNTERS,
    NodeTotals,
    RetiredNodes,
    all_rows,
)
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.values.policy import ExchangePolicy, StreamPolicy, TopicPolicy
from tests.broker.harness import Network

NODES = 4 * AT_ONCE + 7


class Turns:
    """Counts how often others have had a turn, and lets them do something."""

    def __init__(self, net: Network) -> None:
        self.net = net
        self.count = 0

    async def __call__(self) -> None:
        self.count += 1


def many() -> Network:
    net = Network(max_nodes=NODES + 1)
    for number in range(NODES):
        net.declare(f"q{number}")
    return net


async def test_sums_are_counted_a_few_nodes_at_a_time() -> None:
    net = many()
    net.queue("q3").entries.published = 5
    turns = Turns(net)
    sums = NodeTotals()
    retired = RetiredNodes()
    retired.totals["default", "queue", "published"] = 2
    await sums.count(net.broker, retired, turns)
    assert turns.count == NODES // AT_ONCE
    assert sums.nodes["default", "queue"] == NODES
    assert sums.figures["published"]["default", "queue"] == 7


async def test_a_node_that_goes_meanwhile_is_counted_once() -> None:
    net = many()
    net.queue("q3").entries.published = 5
    sums = NodeTotals()

    async def remove() -> None:
        if net.space.find("q3") is not None:
            net.space.remove(net.queue("q3"))

    await sums.count(net.broker, RetiredNodes(), remove)
    assert sums.figures["published"]["default", "queue"] == 5


def many_subscriptions() -> tuple[Network, Topic]:
    """One topic, with named subscriptions and others."""
    net = Network(max_nodes=NODES)
    topic = net.space.create("news", TopicPolicy())
    assert isinstance(topic, Topic)
    client = net.connect(handle_max=NODES)
    for _ in range(2 * AT_ONCE):
        client.receiver("news")
    for number in range(2 * AT_ONCE + 7):
        topic.declare_subscription(f"s{number}")
    return net, topic


async def test_subscriptions_are_read_a_few_at_a_time() -> None:
    net, topic = many_subscriptions()
    net.connect().sender("news").send(b"x")
    turns = Turns(net)
    sums = NodeTotals()
    await sums.count(net.broker, RetiredNodes(), turns)
    assert turns.count >= NODES // AT_ONCE
    assert sums.figures["published"]["default", "subscription"] == NODES
    assert sums.figures["available"]["default", "subscription"] == NODES
    assert sums.nodes == {("default", "topic"): 1}

    async def end_some() -> None:
        for number in range(2 * AT_ONCE + 7):
            if any(one.name == f"s{number}" for one in topic.subscriptions()):
                topic.delete_subscription(f"s{number}")
        net.run()

    # Their end is for the next count, and changes nothing there.
    for _ in range(2):
        await sums.count(net.broker, RetiredNodes(), end_some)
        assert sums.figures["published"]["default", "subscription"] == NODES


async def test_subscriptions_of_random_names_are_one_row() -> None:
    net, _ = many_subscriptions()
    net.connect().sender("news").send(b"x")
    figures = NodeMetrics()
    turns = Turns(net)
    await figures.read(net.broker, turns)
    assert turns.count >= NODES // AT_ONCE
    encode, _ = choose_encoder("")
    text = b"".join([piece async for piece in figures.lines(encode)]).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    published = {
        sample.labels["address"]: sample.value
        for sample in families["ferrymq_messages_published"].samples
    }
    assert len(published) == 2 * AT_ONCE + 7 + 2
    assert published["news::~"] == 2 * AT_ONCE
    assert published["news::s3"] == published["news"] == 1
    waiting = families["ferrymq_node_available"].samples
    assert {sample.labels["address"]: sample.value for sample in waiting}["news::~"] == 2 * AT_ONCE


async def test_a_node_counts_until_its_last_message_is_gone() -> None:
    """What its consumers give back when it is deleted is counted in the same slices."""
    net = Network(slice_size=20)
    retired = RetiredNodes()
    net.space.on_change.append(retired.on_change)
    topic = net.space.create("news", TopicPolicy())
    net.declare("jobs")
    sender = net.connect().sender("jobs")
    client = net.connect()
    readers = [client.receiver("jobs", credit=1) for _ in range(20)]
    sender.send(*[b"x"] * 40)
    subscriber = net.connect().receiver("news", credit=20)
    net.connect().sender("news").send(*[b"x"] * 40)
    assert len(readers[0].deliveries) == 1 and len(subscriber.deliveries) == 20
    counts = []
    for node in (net.queue("jobs"), topic):
        net.broker.begin_pass(net.now)
        net.space.remove(node)
        net.broker.finish_pass()
        assert node in retired.nodes
        while net.later:
            sums = NodeTotals()
            await sums.count(net.broker, retired)
            counts.append(sums.figures["released"]["default", "queue"])
            assert sums.figures["published"]["default", "queue"] == 40
            assert sums.figures["published"]["default", "subscription"] == 40
            net.later.pop(0)()
        net.run()
    assert counts == sorted(counts) and counts[0] < counts[-1] == 20
    assert not retired.nodes
    assert retired.totals["default", "subscription", "released"] == 20


def test_each_kind_has_its_counters_from_the_start() -> None:
    """Those that `BY_KIND` has are those that a node of the kind counts."""
    net = Network()
    net.declare("q")
    topic = net.space.create("t", TopicPolicy())
    assert isinstance(topic, Topic)
    topic.declare_subscription("s")
    net.space.create("s", StreamPolicy())
    net.space.create("e", ExchangePolicy())
    seen = {
        row.kind: {name for name in row.figures() if name in COUNTERS}
        for row in all_rows(net.broker)
    }
    assert seen == {kind: set(names) for kind, names in BY_KIND.items()}


async def test_nodes_are_written_a_few_at_a_time() -> None:
    net = many()
    net.queue("q3").entries.published = 5
    turns = Turns(net)
    figures = NodeMetrics()
    await figures.read(net.broker, turns)
    assert turns.count == NODES // AT_ONCE
    encode, _ = choose_encoder("")
    text = b""
    async for piece in figures.lines(encode, turns):
        assert piece.count(b"\n") <= max(AT_ONCE, 2)
        text += piece
    families = {family.name: family for family in text_string_to_metric_families(text.decode())}
    published = families["ferrymq_messages_published"].samples
    assert len(published) == NODES
    assert {sample.labels["address"]: sample.value for sample in published}["q3"] == 5
    assert turns.count >= len(families) * (NODES // AT_ONCE)


async def test_addresses_are_escaped_and_open_metrics_are_read() -> None:
    net = Network()
    net.declare('a "quoted" \\ name\nof two lines')
    encode, content_type = choose_encoder("application/openmetrics-text; version=1.0.0")
    assert "openmetrics" in content_type
    figures = NodeMetrics()
    await figures.read(net.broker)
    pieces = [piece async for piece in figures.lines(encode)]
    text = b"".join(pieces).decode() + "# EOF\n"
    assert not re.search(r"# EOF\n.", text)
    families = list(openmetrics.text_string_to_metric_families(text))
    labels = {sample.labels["address"] for family in families for sample in family.samples}
    assert labels == {'a "quoted" \\ name\nof two lines'}
