"""Proton: selectors and other filters, on links that consume and that browse."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proton import Described, Link, Message, Timeout, symbol, ulong
from proton.reactor import Copy, Filter, LinkOption, Selector
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached

from tests.interop.broker_process import BrokerProcess
from tests.interop.proton_client import connect

pytestmark = pytest.mark.interop

MESSAGES = [
    Message(body="1", subject="usd.stock", properties={"colour": "red", "weight": 3}),
    Message(body="2", subject="eur.stock.db", properties={"colour": "blue", "weight": 2.5}),
    Message(body="3", subject="stock", properties={"colour": "red", "weight": 9}),
    Message(body="4", priority=1, durable=True, id="m-4"),
]


@pytest.fixture(scope="module")
def connection(broker: BrokerProcess) -> Iterator[BlockingConnection]:
    with connect(broker.url) as connection:
        yield connection


@pytest.fixture
def filled(connection: BlockingConnection, address: str) -> str:
    """An address with four messages."""
    sender = connection.create_sender(address)
    for message in MESSAGES:
        sender.send(message)
    sender.close()
    return address


def received(receiver: BlockingReceiver) -> list[object]:
    """The bodies of all that comes, which are accepted."""
    bodies: list[object] = []
    try:
        while True:
            bodies.append(receiver.receive(timeout=0.3).body)
            receiver.accept()
    except Timeout:
        receiver.close()
        return bodies


def filtered(descriptor: object, value: object) -> LinkOption:
    return Filter({symbol("f"): Described(descriptor, value)})


@pytest.mark.parametrize(
    ("text", "bodies"),
    [
        ("colour = 'red' AND weight BETWEEN 2 AND 5", ["1"]),
        ("colour LIKE '%e%' AND NOT weight > 5.5", ["1", "2"]),
        ("JMSPriority < 4 AND JMSDeliveryMode = 'PERSISTENT' AND JMSMessageID = 'm-4'", ["4"]),
        ("colour IS NULL OR colour IN ('blue', 'green')", ["2", "4"]),
    ],
)
def test_selectors(
    connection: BlockingConnection, filled: str, text: str, bodies: list[str]
) -> None:
    receiver = connection.create_receiver(filled, credit=10, options=Selector(text))
    assert received(receiver) == bodies
    rest = [message.body for message in MESSAGES if message.body not in bodies]
    assert received(connection.create_receiver(filled, credit=10)) == rest


def test_a_browser_with_a_selector(connection: BlockingConnection, filled: str) -> None:
    options = [Selector("weight > 2.5"), Copy()]
    for _ in range(2):
        receiver = connection.create_receiver(filled, credit=10, options=options)
        assert received(receiver) == ["1", "3"]


@pytest.mark.parametrize(
    ("descriptor", "value", "bodies"),
    [
        (ulong(0x468C00000004), "colour = 'blue'", ["2"]),
        (symbol("apache.org:legacy-amqp-direct-binding:string"), "stock", ["3"]),
        (ulong(0x468C00000001), "*.stock.#", ["1", "2"]),
        (
            symbol("apache.org:legacy-amqp-headers-binding:map"),
            {"x-match": "any", "colour": "blue", "weight": 9},
            ["2", "3"],
        ),
        (symbol("amqp:properties-filter"), {symbol("subject"): "&s:stock"}, ["1", "3"]),
        (ulong(0x174), {"colour": "red", "weight": 9}, ["3"]),
        (symbol("amqp:sql-filter"), 'p.subject = "stock"', ["3"]),
        (symbol("apache.org:no-local-filter:list"), [], []),
    ],
)
def test_other_filters(
    connection: BlockingConnection, filled: str, descriptor: object, value: object, bodies: list
) -> None:
    options = filtered(descriptor, value)
    assert received(connection.create_receiver(filled, credit=10, options=options)) == bodies


def test_what_is_in_place_is_answered(connection: BlockingConnection, filled: str) -> None:
    both = {
        symbol("known"): Described(symbol("apache.org:selector-filter:string"), "weight > 5"),
        symbol("unknown"): Described(symbol("example:filter"), "x"),
    }
    receiver = connection.create_receiver(filled, credit=10, options=Filter(both))
    link: Link = receiver.link
    link.remote_source.filter.rewind()
    link.remote_source.filter.next()
    assert list(link.remote_source.filter.get_object()) == ["known"]
    assert received(receiver) == ["3"]


def test_a_selector_that_is_wrong_is_told_where(
    connection: BlockingConnection, address: str
) -> None:
    with pytest.raises(LinkDetached, match="character 10"):
        connection.create_receiver(address, options=Selector("colour = = 'red'"))
