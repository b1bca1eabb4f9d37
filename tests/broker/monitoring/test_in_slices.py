"""Figures of many nodes are read, and written, a few nodes in each pass of the event loop."""

from __future__ import annotations

import re

from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from ferrymq_broker.monitoring.by_node import NodeFigures
from ferrymq_broker.monitoring.counting import AT_ONCE, Sums
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
    net.queue("q3").published = 5
    turns = Turns(net)
    sums = Sums()
    await sums.count(net.broker, {("default", "queue", "published"): 2}, WANTED, turns)
    assert turns.count == NODES // AT_ONCE
    assert sums.nodes["default", "queue"] == NODES
    assert sums.figures["published"]["default", "queue"] == 7


async def test_a_node_that_goes_meanwhile_is_counted_once() -> None:
    net = many()
    net.queue("q3").published = 5
    sums = Sums()

    async def remove() -> None:
        if net.space.find("q3") is not None:
            net.space.remove(net.queue("q3"))

    await sums.count(net.broker, {}, WANTED, remove)
    assert sums.figures["published"]["default", "queue"] == 5


async def test_nodes_are_written_a_few_at_a_time() -> None:
    net = many()
    net.queue("q3").published = 5
    turns = Turns(net)
    figures = NodeFigures()
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
    figures = NodeFigures()
    await figures.read(net.broker)
    pieces = [piece async for piece in figures.lines(encode)]
    text = b"".join(pieces).decode() + "# EOF\n"
    assert not re.search(r"# EOF\n.", text)
    families = list(openmetrics.text_string_to_metric_families(text))
    labels = {sample.labels["address"] for family in families for sample in family.samples}
    assert labels == {'a "quoted" \\ name\nof two lines'}


WANTED = frozenset({"published", "available"})
