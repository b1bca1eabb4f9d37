"""Locks of messages over a connection on loopback, by a clock of the test's."""

from __future__ import annotations

from librt.strings import BytesWriter

from ferrymq_broker.clock import Clock
from ferrymq_broker.config import Config, Listener, Queue
from ferrymq_broker.server import BrokerServer
from ferrymq_types.messaging import (
    Accepted,
    AmqpValue,
    ApplicationProperties,
    Data,
    Modified,
    Properties,
    Rejected,
    Source,
    Target,
)
from ferrymq_types.unions import Section
from tests.broker.management.asker import Answer, read_answer
from tests.broker.socket_client import SocketClient


class LeapingClock(Clock):
    """A clock that a test moves on."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


def encoded(*sections: Section) -> bytes:
    w = BytesWriter()
    for section in sections:
        section.encode(w)
    return w.getvalue()


async def ask(client: SocketClient, operation: str, body: dict[str, object]) -> Answer:
    """Ask the management node about the queue, on links of this request."""
    session = client.engine.begin()
    answers = session.attach_receiver("answers", source=Source(dynamic=True))
    asks = session.attach_sender("asks", target=Target(address="$management"))
    await client.until(lambda: asks.credit > 0 and answers.remote_attach is not None)
    answers.set_credit(1)
    assert answers.remote_attach is not None and answers.remote_attach.source is not None
    asks.send(
        encoded(
            Properties(message_id="m", reply_to=answers.remote_attach.source.address),
            ApplicationProperties({"operation": operation, "type": "queue", "name": "q"}),
            AmqpValue(body),
        )
    )
    known = len(client.deliveries)
    await client.until(lambda: len(client.deliveries) > known)
    delivery = client.deliveries.pop()
    delivery.settle(Accepted())
    session.end()
    await client.round_trip()
    return read_answer(delivery.payload)


async def test_locks_lapse_are_renewed_and_settled_and_messages_are_deferred() -> None:
    clock = LeapingClock()
    config = Config(
        listener=[Listener(url="amqp://127.0.0.1:0")],
        queue=[Queue(name="q", lock_duration=30, deferral=True)],
    )
    async with BrokerServer(config, clock) as server, SocketClient(server.port) as client:

        def later(seconds: float) -> None:
            clock.ahead += seconds
            server.broker.handle_timeout(clock.now())

        session = client.engine.begin()
        sender = session.attach_sender("s", target=Target(address="q"))
        receiver = session.attach_receiver("r", source=Source(address="q"))
        await client.until(lambda: sender.credit > 0)
        for body in (b"late", b"renewed", b"deferred"):
            sender.send(encoded(Data(value=body)))
        receiver.set_credit(3)
        await client.until(lambda: len(client.deliveries) == 3)
        late, renewed, deferred = client.deliveries
        client.deliveries.clear()
        deferred.settle(Modified(undeliverable_here=True))
        await client.round_trip()
        later(20)
        answer = await ask(client, "RENEW-LOCKS", {"tokens": [renewed.tag]})
        assert answer.status == 200
        later(20)
        # The first lock has lapsed, the second has not.
        late.update(Accepted())
        renewed.update(Accepted())
        await client.until(lambda: late.remote_settled and renewed.remote_settled)
        assert isinstance(late.remote_state, Rejected) and late.remote_state.error is not None
        assert late.remote_state.error.condition == "ferrymq:lock-lost"
        assert renewed.remote_state == Accepted()
        receiver.set_credit(5)
        await client.until(lambda: len(client.deliveries) == 1)
        (again,) = client.deliveries
        client.deliveries.clear()
        session.end()
        await client.round_trip()
        # Its session is gone, and its lock is not.
        settle: dict[str, object] = {"tokens": [again.tag], "outcome": "accepted"}
        assert (await ask(client, "SETTLE", settle)).map() == {"count": 1}
        assert (await ask(client, "SETTLE", settle)).status == 410
        received = await ask(client, "RECEIVE-DEFERRED", {"sequences": [3], "settled": True})
        (message,) = received.map()["messages"]  # type: ignore[misc, attr-defined]
        assert message["sequence"] == 3
        assert (await ask(client, "READ", {})).map()["messages"] == 0
