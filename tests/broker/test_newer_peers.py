"""A peer of a later specification: every list that it sends has one field more, which is null."""

from __future__ import annotations

from librt.strings import BytesWriter

from ferrymq.message import Message
from ferrymq_broker.config import Config, Listener
from ferrymq_broker.server import BrokerServer
from ferrymq_codec.reader import Reader
from ferrymq_codec.scalars import Described
from ferrymq_codec.values import read_value, write_value
from ferrymq_types.filters import SelectorFilter
from ferrymq_types.messaging import Accepted, Modified, Source, Target
from tests.broker.socket_client import SocketClient

LOCAL = Listener(url="amqp://127.0.0.1:0")
BODIES = {0x75, 0x76, 0x77}


def longer(value: object) -> object:
    """The value with one null more in each described list."""
    if isinstance(value, Described):
        if isinstance(value.value, list) and value.descriptor not in BODIES:
            items = [*map(longer, value.value), None]
            return Described(value.descriptor, items)
        return Described(value.descriptor, value.value)
    return value


def rewritten(data: bytes) -> bytes:
    """Every value of `data` with its described lists made longer."""
    w = BytesWriter()
    r = Reader(data, 0, len(data))
    while r.remaining():
        write_value(w, longer(read_value(r, "value")), "value")
    return w.getvalue()


class NewerClient(SocketClient):
    """A client that sends longer lists than the specification has."""

    def flush(self) -> None:
        data = self.engine.data_to_send()
        frames = b""
        if data[:4] == b"AMQP":
            frames, data = data[:8], data[8:]
        while data:
            size = int.from_bytes(data[:4], "big")
            body = rewritten(data[8:size])
            frames += (8 + len(body)).to_bytes(4, "big") + data[4:8] + body
            data = data[size:]
        if frames:
            self._transport.write(frames)


async def test_a_peer_whose_types_have_more_fields() -> None:
    """Connect, begin, attach, transfer, settle, detach, end: the broker takes each of them."""
    async with (
        BrokerServer(Config(listener=[LOCAL])) as server,
        NewerClient(server.port) as client,
        SocketClient(server.port) as reader,
    ):
        session = client.engine.begin()
        sender = session.attach_sender("s", target=Target(address="q"))
        await client.until(lambda: sender.credit > 0)
        for number in range(4):
            message = Message(
                b"x",
                durable=True,
                priority=7,
                subject=f"{number}",
                application_properties={"n": number},
            )
            sender.send(message.encode())
        await client.until(lambda: client.unsettled(sender) == 0)

        # What the broker reads of such a message is the same as ever.
        chosen = Source(
            address="q",
            filter={"s": SelectorFilter("JMSType = '2' AND JMSPriority = 7 AND n = 2")},
        )
        wanted = reader.engine.begin().attach_receiver("w", source=chosen)
        wanted.set_credit(10)
        await reader.until(lambda: len(reader.deliveries) == 1)
        got = Message.decode(reader.deliveries[0].payload)
        assert (got.subject, got.priority, got.durable) == ("2", 7, True)
        reader.deliveries[0].settle(Accepted())
        await reader.round_trip()

        receiver = session.attach_receiver("r", source=Source(address="q"))
        receiver.set_credit(10)
        await client.until(lambda: len(client.deliveries) == 3)
        client.deliveries[0].settle(Modified(delivery_failed=True, undeliverable_here=False))
        await client.until(lambda: len(client.deliveries) == 4)
        again = Message.decode(client.deliveries[3].payload)
        assert (again.subject, again.delivery_count) == ("0", 1)
        for delivery in client.deliveries[1:]:
            delivery.settle(Accepted())
        receiver.detach()
        sender.detach(closed=True)
        await client.round_trip()
        session.end()
        await client.round_trip()
    assert client.closed_with is None
