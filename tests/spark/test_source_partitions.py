"""Streams with as many partitions as there may be, and with names of all sorts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyspark_ferrymq.broker_streams import BrokerStreams
from pyspark_ferrymq.options import BrokerOptions, Selection, Values
from tests.interop.broker_process import BrokerProcess
from tests.spark.kit import Streams


@pytest.fixture
def service(broker: BrokerProcess) -> Iterator[BrokerStreams]:
    found = BrokerStreams(BrokerOptions.parse(Values({"url": broker.url})))
    yield found
    found.close()


def test_as_many_as_there_may_be(
    broker: BrokerProcess, service: BrokerStreams, address: str
) -> None:
    with Streams(broker) as kit:
        kit.create(address, 1024)
        kit.fill(f"{address}::1023", 3)
    ranges = service.ranges(Selection("subscribe", (address,)))[address]
    assert len(ranges.partitions) == 1024
    assert service.at_time(address, dict.fromkeys(range(1024), 0)) == dict.fromkeys(range(1024), 0)
    found = service.behind(address, dict.fromkeys(range(1024), (0, 1)))
    assert found == {**dict.fromkeys(range(1023), 0), 1023: 1}
    service.hold(address, "q", found)


@pytest.mark.parametrize("name", ["a/b c", "ünïcode ✓", "with,comma", "100%", "['x']"])
def test_names(broker: BrokerProcess, service: BrokerStreams, name: str) -> None:
    with Streams(broker) as kit:
        kit.create(name)
        kit.fill(name, 2)
    assert (
        service.ranges(Selection("assign", (name,), partitions={name: (0,)}))[name]
        .partitions[0]
        .next
        == 2
    )
    assert service.behind(name, {0: (0, 1)}) == {0: 1}
