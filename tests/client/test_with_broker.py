"""The clients against the project's own broker, in the same process or in a thread."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from decimal import Decimal

import pytest

import ferrymq
from ferrymq import Message, blocking
from ferrymq.options import ConnectionArguments, ReceiverArguments
from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer
from ferrymq_broker.values.policy import TopicPolicy
from ferrymq_codec import Array, Float32, Symbol, Timestamp, UByte, UInt, ULong
from ferrymq_types.messaging import AmqpSequence, Data, TerminusExpiryPolicy
from ferrymq_types.transport import ReceiverSettleMode, SenderSettleMode


@pytest.fixture
async def broker() -> AsyncIterator[BrokerServer]:
    config = Config.model_validate({"listener": [{"url": "amqp://127.0.0.1:0"}]})
    async with BrokerServer(config) as server:
        yield server


@pytest.fixture
async def connection(broker: BrokerServer) -> AsyncIterator[ferrymq.Connection]:
    async with ferrymq.connect(broker.url) as connected:
        yield connected


async def test_a_durable_subscription_waits_for_its_receiver(broker: BrokerServer) -> None:
    broker.broker.default.create("prices", TopicPolicy())
    options: ReceiverArguments = {"name": "mine", "expiry_policy": TerminusExpiryPolicy.NEVER}
    async with ferrymq.connect(broker.url, container_id="me") as connection:
        receiver = await connection.receiver("prices", **options)
        await receiver.detach()
        sender = await connection.sender("prices")
        await sender.send(Message("while away"))
        receiver = await connection.receiver("prices", **options)
        delivery = await receiver.receive(timeout=20)
        assert delivery.message.body == "while away"
        await delivery.accept()
        await receiver.close()
        # Closing has ended the subscription.
        await sender.send(Message("for nobody"))
        receiver = await connection.receiver("prices", **options)
        await sender.send(Message("new"))
        assert (await receiver.receive(timeout=20)).message.body == "new"


@pytest.mark.spec("2.6.7")
@pytest.mark.parametrize(
    ("messages", "size", "options"),
    [
        *[(messages, 10, {"incoming_window": 4}) for messages in (1, 4, 5, 9)],
        (1, 1_100_000, {"max_frame_size": 512}),
    ],
)
async def test_a_drain_ends_whatever_the_window(
    broker: BrokerServer, messages: int, size: int, options: ConnectionArguments
) -> None:
    async with ferrymq.connect(broker.url, **options) as connection:
        sender = await connection.sender("orders")
        await sender.send_many([Message(bytes(size))] * messages)
        receiver = await connection.receiver("orders", credit=0)
        receiver.add_credit(20)
        await receiver.drain(timeout=20)
        assert (receiver.queued, receiver.credit) == (messages, 0)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"bytes",
        "text",
        None,
        12345678901,
        [1, "two", {"three": 3.0}],
        {"nested": {"list": [b"x", None, True]}},
        AmqpSequence([1, "two"]),
        [Data(b"a"), Data(b"b")],
        Array("uint", [1, 2, 3]),
        b"x" * 10_000_000,
    ],
    ids=lambda body: type(body).__name__,
)
async def test_every_kind_of_body(connection: ferrymq.Connection, body: object) -> None:
    message = Message(body, subject="kinds", durable=True)
    async with connection.sender("bodies") as sender, connection.receiver("bodies") as receiver:
        await sender.send(message, timeout=20)
        delivery = await receiver.receive(timeout=20)
        assert delivery.message.body_sections == message.body_sections
        assert delivery.message.subject == "kinds"
        assert delivery.message.durable
        await delivery.accept()


async def test_properties_keep_their_types(connection: ferrymq.Connection) -> None:
    properties: dict[str, object] = {
        "null": None,
        "bool": True,
        "ubyte": UByte(1),
        "uint": UInt(2),
        "ulong": ULong(3),
        "long": -4,
        "float": Float32(0.5),
        "double": 0.1,
        "decimal": Decimal("1.50"),
        "timestamp": Timestamp(5),
        "uuid": uuid.UUID(int=6),
        "binary": b"7",
        "string": "8",
        "symbol": Symbol("9"),
    }
    sender = await connection.sender("types")
    receiver = await connection.receiver("types")
    await sender.send(Message(b"", application_properties=properties, message_id=uuid.UUID(int=1)))
    received = (await receiver.receive(timeout=10)).message
    assert received.application_properties == properties
    for name, value in properties.items():
        assert type(received.application_properties[name]) is type(value)
    assert received.message_id == uuid.UUID(int=1)


@pytest.mark.parametrize("snd", list(SenderSettleMode))
@pytest.mark.parametrize("rcv", list(ReceiverSettleMode))
async def test_every_pair_of_settle_modes(
    connection: ferrymq.Connection, snd: SenderSettleMode, rcv: ReceiverSettleMode
) -> None:
    async with (
        connection.sender("modes", snd_settle_mode=snd, rcv_settle_mode=rcv) as sender,
        connection.receiver("modes", snd_settle_mode=snd, rcv_settle_mode=rcv) as receiver,
    ):
        await sender.send_many((Message(i) for i in range(20)), timeout=10)
        for expected in range(20):
            delivery = await receiver.receive(timeout=10)
            assert delivery.message.body == expected
            assert delivery.settled == (snd is SenderSettleMode.SETTLED)
            await delivery.accept(timeout=10)
    async with connection.receiver("modes", credit=0) as receiver:
        receiver.add_credit(1)
        await receiver.drain(timeout=10)
        assert receiver.queued == 0


async def test_order_is_kept_through_release(connection: ferrymq.Connection) -> None:
    sender = await connection.sender("order")
    await sender.send_many([Message(i) for i in range(10)])
    async with connection.receiver("order") as receiver:
        taken = [await receiver.receive(timeout=10) for _ in range(5)]
        for delivery in taken:
            await delivery.release()
    bodies = []
    async for delivery in connection.receiver("order"):
        bodies.append(delivery.message.body)
        await delivery.accept()
        if len(bodies) == 10:
            break
    assert bodies == list(range(10))


async def test_browsing_leaves_the_messages(connection: ferrymq.Connection) -> None:
    sender = await connection.sender("shelf")
    await sender.send_many([Message(i) for i in range(5)])
    for _ in range(2):
        async with connection.receiver("shelf", mode="copy") as browser:
            seen = [(await browser.receive(timeout=10)).message.body for _ in range(5)]
        assert seen == [0, 1, 2, 3, 4]
    async with connection.receiver("shelf") as receiver:
        assert (await receiver.receive(timeout=10)).message.body == 0


async def test_request_and_response(connection: ferrymq.Connection) -> None:
    async def serve() -> None:
        answers = await connection.sender(None)
        async for delivery in connection.receiver("service"):
            request = delivery.message
            await answers.send(
                Message(request.body * 2, to=request.reply_to, correlation_id=request.message_id)
            )
            await delivery.accept()
            return

    server = asyncio.create_task(serve())
    replies = await connection.receiver(None, dynamic=True)
    requests = await connection.sender("service")
    await requests.send(Message(21, message_id=ULong(7), reply_to=replies.address))
    reply = (await replies.receive(timeout=10)).message
    assert (reply.body, reply.correlation_id) == (42, 7)
    async with asyncio.timeout(10):
        await server


async def test_a_broker_that_stops_is_noticed() -> None:
    config = Config.model_validate({"listener": [{"url": "amqp://127.0.0.1:0"}]})
    async with BrokerServer(config) as server:
        connection = await ferrymq.connect(server.url)
        receiver = await connection.receiver("orders")
        waiting = asyncio.create_task(receiver.receive())
        await connection.session()
    with pytest.raises(ferrymq.ConnectionClosed) as caught:
        await waiting
    assert caught.value.condition == "amqp:connection:forced"
    await connection.close()


async def test_the_blocking_client(broker: BrokerServer) -> None:
    def work() -> list[object]:
        with blocking.connect(broker.url) as connection:
            with connection.sender("blocking") as sender:
                sender.send(Message(b"first"), timeout=10)
                sender.send_many([Message(i) for i in range(100)], timeout=10)
            bodies: list[object] = []
            with connection.receiver("blocking") as receiver:
                while len(bodies) < 101:
                    for delivery in receiver.receive_many(50, timeout=10):
                        bodies.append(delivery.message.body)
                        delivery.accept()
            return bodies

    assert await asyncio.to_thread(work) == [b"first", *range(100)]
