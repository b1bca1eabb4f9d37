"""Types of an application's own, over the wire: `connect(types=registry)` and without it."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import ferrymq
from ferrymq import Message, blocking
from ferrymq.engine.connection import Connection as Engine
from ferrymq.engine.events import OpenReceived
from ferrymq.engine.settings import ConnectionSettings
from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer
from ferrymq_codec import CodecError, DecodeError, Described, Symbol, UByte
from ferrymq_codec.described_types import DescribedTypes
from ferrymq_codegen.amqp_1_0.own_package import generate
from ferrymq_types import registry as core
from ferrymq_types.filters import SelectorFilter
from ferrymq_types.messaging import AmqpSequence, AmqpValue
from ferrymq_types.transport import Error

SPEC = """<?xml version="1.0"?>
<amqp name="shop" xmlns="http://www.amqp.org/schema/amqp.xsd" label="a shop">
  <section name="shop">
    <type name="parcel" class="composite" source="list">
      <descriptor name="shop:parcel:list" code="0x0000ACDC:0x00000001"/>
      <field name="weight" type="uint" mandatory="true"/>
      <field name="content" type="*"/>
    </type>
    <type name="grade" class="restricted" source="ubyte">
      <descriptor name="shop:grade:ubyte" code="0x0000ACDC:0x00000002"/>
    </type>
  </section>
</amqp>
"""
CODE = 0x0000ACDC00000001


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The classes and the registry of a generated package."""
    folder = tmp_path_factory.mktemp("shop")
    xml = folder / "shop.xml"
    xml.write_text(SPEC, "utf-8")
    assert generate([xml], folder, "wire_shop", check=False, verify=False) == 0
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        types = importlib.import_module("wire_shop.shop")
        yield SimpleNamespace(
            Parcel=types.Parcel,
            Grade=types.Grade,
            registry=importlib.import_module("wire_shop.registry"),
        )
    finally:
        sys.path.remove(str(folder))


@pytest.fixture
async def broker() -> AsyncIterator[BrokerServer]:
    config = Config.model_validate(
        {"listener": [{"url": "amqp://127.0.0.1:0"}], "queue": [{"name": "parcels"}]}
    )
    async with BrokerServer(config) as server:
        yield server


async def sent(url: str, message: Message, types: Any) -> Message:
    """The message as a client with these types receives it."""
    async with ferrymq.connect(url, types=types) as connection:
        sender = await connection.sender("parcels")
        await sender.send(message)
        receiver = await connection.receiver("parcels")
        delivery = await receiver.receive(timeout=20)
        received = delivery.message
        await delivery.accept()
        return received


async def test_bodies(shop: Any, broker: BrokerServer) -> None:
    parcel = shop.Parcel(weight=3, content=shop.Grade(value=2))
    for body in (parcel, [parcel, 1], {"a": parcel, parcel.weight: [[parcel]]}):
        assert (await sent(broker.url, Message(body), shop.registry)).body == body
    received = await sent(broker.url, Message(AmqpSequence([parcel, "x"])), shop.registry)
    assert received.body == [parcel, "x"]
    assert received.body_sections == [AmqpSequence([parcel, "x"])]


async def test_annotations(shop: Any, broker: BrokerServer) -> None:
    parcel = shop.Parcel(weight=3)
    message = Message(b"x", message_annotations={"x-parcel": parcel, "x-all": [parcel]})
    received = await sent(broker.url, message, shop.registry)
    assert received.message_annotations["x-parcel"] == parcel
    assert received.message_annotations["x-all"] == [parcel]


async def test_without_the_types_a_value_is_described(shop: Any, broker: BrokerServer) -> None:
    message = Message(shop.Parcel(weight=3), message_annotations={"x-grade": shop.Grade(value=1)})
    for types in (None, core):
        received = await sent(broker.url, message, types)
        assert isinstance(received.body, Described)
        assert shop.registry.typed(received.body) == shop.Parcel(weight=3)
        assert isinstance(received.message_annotations["x-grade"], Described)


async def test_several_registries(shop: Any, broker: BrokerServer) -> None:
    body = [shop.Parcel(weight=1), Error(condition="shop:lost")]
    assert (await sent(broker.url, Message(body), [shop.registry, core])).body == body
    own = (await sent(broker.url, Message(body), shop.registry)).body
    assert own[0] == body[0]
    assert isinstance(own[1], Described)


async def test_symbolic_descriptors(shop: Any, broker: BrokerServer) -> None:
    body = Described(Symbol("shop:grade:ubyte"), UByte(7))
    assert (await sent(broker.url, Message(body), shop.registry)).body == shop.Grade(value=7)


async def test_filters(broker: BrokerServer) -> None:
    """The broker's attach names the filter that it applies."""
    asked = {"big": SelectorFilter("weight > 5")}
    for types, kind in ((core, SelectorFilter), (None, Described)):
        async with ferrymq.connect(broker.url, types=types) as connection:
            receiver = await connection.receiver("parcels", filters=asked)
            source = receiver.source
            assert source is not None and source.filter is not None
            assert isinstance(source.filter["big"], kind)


def test_maps_of_frames(shop: Any) -> None:
    """Also what a peer puts into the properties of its open."""
    settings = ConnectionSettings(
        container_id="us", initiator=True, types=DescribedTypes.of(shop.registry)
    )
    peer = Engine(
        ConnectionSettings(
            container_id="peer", initiator=False, properties={"parcel": shop.Parcel(weight=1)}
        ),
        0.0,
    )
    engine = Engine(settings, 0.0)
    engine.open()
    peer.receive_data(engine.data_to_send(), 0.0)
    peer.open()
    engine.receive_data(peer.data_to_send(), 0.0)
    (opened,) = [event for event in engine.take_events() if isinstance(event, OpenReceived)]
    assert opened.open.properties == {"parcel": shop.Parcel(weight=1)}


def test_a_message_alone(shop: Any) -> None:
    data = Message(shop.Parcel(weight=1)).encode()
    types = DescribedTypes.of(shop.registry)
    assert Message.decode(data, types=types) == Message(shop.Parcel(weight=1))
    assert Message.decode(data, types=types).encode() == data
    assert Message.decode(data).body == Described(CODE, Message.decode(data).body.value)


def test_a_malformed_value_is_named(shop: Any) -> None:
    types = DescribedTypes.of(shop.registry)
    data = Message(AmqpValue(Described(CODE, []))).encode()
    with pytest.raises(DecodeError, match=r"^parcel\.weight: mandatory field is missing"):
        Message.decode(data, types=types)
    deep: object = None
    for _ in range(200):
        deep = Described(CODE, [1, deep])
    with pytest.raises(CodecError, match="nested too deeply"):
        Message.decode(Message(deep).encode(), types=types)


def test_values_that_are_nested_without_lists_are_bounded() -> None:
    data = b"\x00\x53\x77" * 200 + b"\x40"
    with pytest.raises(CodecError, match="nested too deeply"):
        Message.decode(data, types=DescribedTypes.of(core))


def test_of_two_types_with_one_descriptor_the_first_counts(shop: Any) -> None:
    other = SimpleNamespace(DECODERS={CODE: core.DECODERS[0x77]}, CODES={"shop:parcel:list": 0x77})
    for tables in ([shop.registry, other], [other, shop.registry]):
        types = DescribedTypes.of(tables)
        assert types.decoders[CODE] is tables[0].DECODERS[CODE]
        assert types.codes["shop:parcel:list"] == tables[0].CODES["shop:parcel:list"]


async def test_what_is_no_registry_is_refused(shop: Any) -> None:
    for wrong in (shop.Parcel, [shop], "wire_shop"):
        with pytest.raises(TypeError, match="types takes the module `registry`"):
            ferrymq.connect("amqp://127.0.0.1:1", types=wrong)


async def test_peeked_messages(shop: Any, broker: BrokerServer) -> None:
    parcel = shop.Parcel(weight=3)
    async with ferrymq.connect(broker.url, types=shop.registry) as connection:
        await (await connection.sender("parcels")).send(Message(parcel))
        async with connection.management() as management:
            (peeked,) = await management.peek("queue", "parcels")
    assert peeked.message.body == parcel


async def test_blocking(shop: Any, broker: BrokerServer) -> None:
    parcel = shop.Parcel(weight=3)

    def work() -> Message:
        with blocking.connect(broker.url, types=shop.registry) as connection:
            connection.sender("parcels").send(
                Message(parcel, message_annotations={"x-parcel": parcel})
            )
            with connection.receiver("parcels") as receiver:
                delivery = receiver.receive(timeout=20)
                delivery.accept()
                return delivery.message

    received = await asyncio.to_thread(work)
    assert received.body == received.message_annotations["x-parcel"] == parcel
