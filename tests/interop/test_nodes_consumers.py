"""Proton on queues: who gets which message, in which order, and who may look."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proton import Delivery, Message, Terminus, int32, symbol
from proton.utils import BlockingConnection, LinkDetached

from tests.interop.broker_process import BrokerProcess
from tests.interop.proton_client import connect
from tests.interop.proton_nodes import Asking, Inbox, fence, left, send, settle
from tests.interop.relay import Relay

pytestmark = pytest.mark.interop

CONFIG = """
[[queue]]
pattern = "single-active-*"
single-active = true

[[queue]]
pattern = "exclusive-*"
exclusive = true

[[queue]]
pattern = "grouped-*"
groups = true

[[queue]]
pattern = "three-levels-*"
priorities = 3
"""


@pytest.fixture
def other(broker: BrokerProcess) -> Iterator[BlockingConnection]:
    with connect(broker.url) as connection:
        yield connection


# -- who gets it ----------------------------------------------------------------------------


def test_competing_consumers_take_turns(
    connection: BlockingConnection, other: BlockingConnection, address: str
) -> None:
    one, two = Inbox(connection, address), Inbox(other, address)
    fence(connection)
    fence(other)
    send(connection, address, *range(10))
    shares = [one.bodies(5), two.bodies(5)]
    assert sorted(shares[0] + shares[1]) == list(range(10))
    assert all(share == sorted(share) for share in shares)


def test_a_consumer_without_credit_does_not_keep_the_others(
    connection: BlockingConnection, other: BlockingConnection, address: str
) -> None:
    idle = Inbox(connection, address, credit=2)
    fence(connection)
    busy = Inbox(other, address, credit=10)
    fence(other)
    send(other, address, *range(12))
    assert sorted(idle.bodies(2) + busy.bodies(10)) == list(range(12))


@pytest.mark.parametrize("name", ["priority", "x-priority", "rabbitmq:priority"])
def test_a_consumer_of_higher_priority_goes_first(
    connection: BlockingConnection, other: BlockingConnection, address: str, name: str
) -> None:
    usual = Inbox(connection, address)
    options = Asking(properties={name: int32(7)})
    preferred = Inbox(other, address, credit=3, options=options)
    assert preferred.link.remote_properties == {name: 7}
    fence(connection)
    fence(other)
    send(connection, address, *range(5))
    assert preferred.bodies(3) == [0, 1, 2]
    assert usual.bodies(2) == [3, 4]


@pytest.mark.parametrize("way", ["property", "capability", "policy"])
def test_an_exclusive_consumer_is_alone(
    connection: BlockingConnection, other: BlockingConnection, address: str, way: str
) -> None:
    options = {
        "property": Asking(properties={"exclusive": True}),
        "capability": Asking(capabilities=["exclusive"]),
        "policy": Asking(),
    }[way]
    if way == "policy":
        address = f"exclusive-{address}"
    alone = Inbox(connection, address, credit=0, options=options)
    with pytest.raises(LinkDetached, match="resource-locked"):
        Inbox(other, address)
    # A browser consumes nothing and may look.
    browser = Inbox(other, address, options=Asking(mode=Terminus.DIST_MODE_COPY))
    send(connection, address, "one")
    assert browser.next().body == "one"
    alone.link.flow(1)
    assert alone.next().body == "one"
    alone.close()
    Inbox(other, address)


def test_a_single_active_consumer_is_followed_by_the_next(
    connection: BlockingConnection, other: BlockingConnection, address: str
) -> None:
    address = f"single-active-{address}"
    active, waiting = Inbox(connection, address), Inbox(other, address)
    fence(other)
    send(connection, address, 0, 1, 2)
    assert active.next().body == 0
    active.get()
    fence(other)
    assert waiting.waiting == 0
    active.close()
    assert waiting.bodies(2) == [1, 2]


def test_groups_stay_with_their_consumers(
    connection: BlockingConnection, other: BlockingConnection, address: str
) -> None:
    address = f"grouped-{address}"
    inboxes = [Inbox(connection, address), Inbox(other, address)]
    fence(connection)
    fence(other)
    messages = [Message(body=[name, n], group_id=name) for n in range(3) for name in ("a", "b")]
    send(connection, address, *messages)
    got = [[inbox.get() for _ in range(3)] for inbox in inboxes]
    for share in got:
        (group,) = {message.group_id for message, _ in share}
        assert [message.body for message, _ in share] == [[group, 0], [group, 1], [group, 2]]
    (group,) = {message.group_id for message, _ in got[0]}
    # What its consumer held goes to the other one, in order, when the consumer is gone.
    inboxes[0].close()
    assert inboxes[1].bodies(3) == [[group, 0], [group, 1], [group, 2]]


# -- browsing -------------------------------------------------------------------------------


def test_browsers_neither_take_nor_disturb(
    connection: BlockingConnection, other: BlockingConnection, address: str
) -> None:
    send(connection, address, 0, 1, 2)
    browser = Inbox(connection, address, options=Asking(mode=Terminus.DIST_MODE_COPY))
    assert browser.link.remote_source.distribution_mode == Terminus.DIST_MODE_COPY
    message, delivery = browser.get()
    settle(delivery, Delivery.REJECTED)
    consumer = Inbox(other, address, credit=1)
    assert (message.body, consumer.next().body) == (0, 0)
    assert browser.bodies(2) == [1, 2]
    consumer.close()
    assert left(other, address) == [1, 2]


# -- order ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "local", "failures"),
    [
        (Delivery.RELEASED, {}, 0),
        (Delivery.MODIFIED, {}, 0),
        (Delivery.MODIFIED, {"failed": True}, 1),
    ],
    ids=["released", "modified", "modified, failed"],
)
def test_what_comes_back_comes_to_its_place(
    connection: BlockingConnection, address: str, outcome: int, local: dict, failures: int
) -> None:
    send(connection, address, *[Message(body=n, first_acquirer=True) for n in range(5)])
    inbox = Inbox(connection, address, credit=4)
    held = [inbox.get()[1] for _ in range(4)]
    for position in (2, 0, 3):
        settle(held[position], outcome, **local)
    settle(held[1], Delivery.ACCEPTED)
    inbox.close()
    inbox = Inbox(connection, address)
    messages = [inbox.next() for _ in range(4)]
    assert [message.body for message in messages] == [0, 2, 3, 4]
    assert [message.delivery_count for message in messages] == [failures] * 3 + [0]
    assert [message.first_acquirer for message in messages] == [False] * 3 + [True]


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "detached"])
def test_a_link_that_goes_gives_back_in_order(
    connection: BlockingConnection, address: str, closed: bool
) -> None:
    send(connection, address, *range(5))
    inbox = Inbox(connection, address, credit=4)
    for _ in range(4):
        inbox.get()
    if closed:
        inbox.close()
    else:
        inbox.receiver.detach()
    fence(connection)
    again = Inbox(connection, address)
    messages = [again.next() for _ in range(5)]
    assert [(message.body, message.delivery_count) for message in messages] == [
        (body, 0) for body in range(5)
    ]


def test_a_lost_connection_gives_back_in_order_and_counts(
    broker: BrokerProcess, connection: BlockingConnection, address: str
) -> None:
    send(connection, address, *range(5))
    with Relay(broker.port) as relay:
        lost = BlockingConnection(f"amqp://127.0.0.1:{relay.port}", timeout=20)
        inbox = Inbox(lost, address, credit=3)
        for _ in range(3):
            inbox.get()
        relay.cut()
        again = Inbox(connection, address)
        messages = [again.next() for _ in range(5)]
    # The first may be here before the broker has noticed, those held may not.
    assert sorted((message.body, message.delivery_count) for message in messages) == [
        (0, 1),
        (1, 1),
        (2, 1),
        (3, 0),
        (4, 0),
    ]


def test_ten_priorities(connection: BlockingConnection, address: str) -> None:
    urgent = [Message(body=[level, n], priority=level) for n in range(2) for level in range(10)]
    send(connection, address, *urgent)
    assert left(connection, address) == [[level, n] for level in range(9, -1, -1) for n in (0, 1)]


def test_fewer_priorities(connection: BlockingConnection, address: str) -> None:
    address = f"three-levels-{address}"
    messages = [Message(body=level, priority=level) for level in (0, 3, 4, 9, 5, 1)]
    send(connection, address, *messages, Message(body="usual"))
    assert left(connection, address) == [9, 5, 4, "usual", 0, 3, 1]


# -- modified -------------------------------------------------------------------------------


def test_modified_in_full(
    connection: BlockingConnection, other: BlockingConnection, address: str
) -> None:
    send(connection, address, Message(body="x", annotations={"x-opt-a": 1, "x-opt-b": 2}), "y")
    first = Inbox(connection, address, credit=1)
    _, delivery = first.get()
    annotations = {symbol("x-opt-b"): 3, symbol("x-opt-c"): 4}
    settle(delivery, Delivery.MODIFIED, failed=True, undeliverable=True, annotations=annotations)
    first.receiver.link.flow(5)
    assert first.next().body == "y"
    first.drain()
    assert first.waiting == 0
    message = Inbox(other, address).next()
    assert message.body == "x"
    assert message.annotations == {"x-opt-a": 1, "x-opt-b": 3, "x-opt-c": 4}
    assert (message.delivery_count, message.first_acquirer) == (1, False)
