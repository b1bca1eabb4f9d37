"""Reading of leases by links: copies, in chunks or one by one."""

from __future__ import annotations

import pytest

from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import Data, Header
from tests.broker.harness import Network, header
from tests.broker.paging.paged import PagedNetwork
from tests.broker.queues.leasing import Leasing, chunked, fill, read, read_chunks
from tests.broker.queues.links import consume, numbered


@pytest.fixture
def leasing(net: Network) -> Leasing:
    net.declare("q")
    return Leasing(net)


def test_many_messages_in_a_transfer(net: Network, leasing: Leasing) -> None:
    fill(net, 10)
    leasing.lease(1, messages=9)
    receiver = read_chunks(net.connect(), "h", 1, 4, first=1, until=8)
    assert chunked(receiver) == [(1, 5, numbered(1, 4)), (5, 8, numbered(5, 3))]
    answer = receiver.link.remote_attach
    assert answer is not None and answer.properties is not None
    assert answer.properties["ferrymq:lease"] == {"first": 1, "until": 8}
    assert net.broker.agenda.chunk_budget.held >= 0
    receiver.close()
    assert net.broker.agenda.chunk_budget.held == 0


def test_a_drain_is_answered_at_the_end(net: Network, leasing: Leasing) -> None:
    fill(net, 3)
    leasing.lease(1)
    receiver = read(net.connect(), "h", 1)
    receiver.drain()
    assert receiver.link.credit == 0 and receiver.bodies() == numbered(0, 3)


def test_copies_are_settled_and_take_nothing(net: Network, leasing: Leasing) -> None:
    fill(net, 1)
    leasing.lease(1)
    receiver = read(net.connect(), "h", 1)
    assert receiver.remote_source.distribution_mode == "copy"
    receiver.close()
    assert leasing.read(1) == numbered(0, 1)


def test_the_header_tells_of_failed_deliveries(net: Network, leasing: Leasing) -> None:
    net.connect().sender("q").send_sections(Header(durable=True), Data(value=b"1"))
    for number in (1, 2):
        leasing.lease(number, duration=1_000)
        receiver = read(net.connect(), "h", number)
        assert header(receiver.deliveries[0].payload).delivery_count == number - 1
        net.advance(2)


@pytest.mark.parametrize(
    "asked",
    [
        7,
        {"number": 1},
        {"holder": "h"},
        {"holder": "h", "number": "1"},
        {"holder": "h", "number": 1, "first": -1},
        {"holder": "h", "number": 1, "part": 2},
    ],
)
def test_wrong_properties(net: Network, leasing: Leasing, asked: object) -> None:
    receiver = net.connect().receiver("q", properties={"ferrymq:lease": asked})
    assert receiver.error is not None and receiver.error.condition in (
        "amqp:invalid-field",
        "ferrymq:lease-lost",
    )


def test_a_lease_that_does_not_exist(net: Network, leasing: Leasing) -> None:
    fill(net, 1)
    leasing.lease(1)
    for holder, number in (("h", 2), ("other", 1)):
        receiver = read(net.connect(), holder, number)
        assert receiver.error is not None and receiver.error.condition == "ferrymq:lease-lost"


def test_a_message_that_is_too_large_ends_the_link(net: Network, leasing: Leasing) -> None:
    net.connect().sender("q").send_sections(Data(value=b"x" * 5000))
    leasing.lease(1)
    receiver = net.connect().receiver(
        "q",
        credit=1,
        properties={"ferrymq:lease": {"holder": "h", "number": 1}},
        max_message_size=1000,
    )
    assert receiver.error is not None
    assert receiver.error.condition == "amqp:link:message-size-exceeded"


def test_messages_on_disk_stay_there() -> None:
    net = PagedNetwork()
    queue = net.declare("q", QueuePolicy())
    sender = net.connect().sender("q")
    for number in range(200):
        sender.send_sections(Data(value=b"%06d" % number + b"x" * 200))
    net.settle()
    leasing = Leasing(net)
    paging = queue.entries.paging
    assert paging is not None and paging.count > 100
    before = paging.count
    assert leasing.lease(1) == 200
    bodies = leasing.read(1)
    assert [int(body[:6]) for body in bodies] == list(range(200))
    assert paging.count == before
    assert leasing.settle(1) == 200
    assert queue.message_count() == 0 and paging.count == 0
    assert consume(net.connect(), "q", credit=1).bodies() == []
