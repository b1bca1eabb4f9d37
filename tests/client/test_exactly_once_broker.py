"""Exactly once between the client and the project's own broker, wherever it is cut (§2.6.13)."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ferrymq
from ferrymq import Message, Unsettled
from ferrymq_broker.config import Config
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.server import BrokerServer
from ferrymq_types.messaging import Accepted
from tests.client.cutter import Cutter
from tests.client.keeper import POLICY, Cut
from tests.client.test_exactly_once import SIZES, bytes_passed, cut, opened

CONFIG = Config.model_validate({"listener": [{"url": "amqp://127.0.0.1:0"}]})


def queue(server: BrokerServer, name: str = "q") -> Queue:
    found = server.broker.default.nodes[name]
    assert isinstance(found, Queue)
    return found


def port(server: BrokerServer) -> int:
    return int(server.url.rsplit(":", 1)[1])


async def connected(url: str) -> ferrymq.Connection:
    while True:
        try:
            return await ferrymq.connect(
                url, container_id="me", reconnect=POLICY, max_frame_size=512
            )
        except ferrymq.AmqpError:
            continue


async def there_and_back(cuts: list[Cut], credit: int) -> None:
    """Send messages to a queue and receive them from it, in one go."""
    bodies = [f"{n}:".ljust(size, "x") for n, size in enumerate(SIZES * 2)]
    async with BrokerServer(CONFIG) as server, Cutter(port(server), cuts) as cutter:
        async with asyncio.timeout(20):
            connection = await connected(cutter.url)
            sender = await opened(
                lambda: connection.sender("q", name="out", exactly_once=True).open()
            )
            receiver = await opened(
                lambda: connection.receiver("q", name="in", exactly_once=True, credit=credit).open()
            )

            async def send() -> None:
                await asyncio.gather(*(sender.send(Message(body)) for body in bodies))

            async def receive() -> list[str]:
                got = []
                accepting = []
                while len(got) < len(bodies):
                    delivery = await receiver.receive()
                    got.append(delivery.message.body)
                    accepting.append(asyncio.create_task(delivery.accept()))
                await asyncio.gather(*accepting)
                return got

            _, got = await asyncio.gather(send(), receive())
            # What is accepted is final: nothing is left, and nothing comes again.
            while queue(server).message_count():  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            assert sorted(got) == sorted(bodies)
            assert receiver.queued == 0
            await connection.close()


@pytest.mark.spec("2.6.13", "2.6.12", "3.4.6", "3.5.6")
@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(cut, max_size=6), credit=st.sampled_from([3, 100]))
@example(cuts=[], credit=100)
def test_each_message_exactly_once_wherever_it_is_cut(cuts: list[Cut], credit: int) -> None:
    asyncio.run(there_and_back([Cut(c.incoming, c.outgoing) for c in cuts], credit))


async def dying_writer(cuts: list[int]) -> None:
    """A writer that dies again and again has each of its messages sent once."""
    notes = {b"order-%d" % n: Message(n).encode() for n in range(10)}
    async with BrokerServer(CONFIG) as server:
        for number, bytes in enumerate([*cuts, 0]):
            cutting = [Cut(outgoing=bytes)] if bytes else []
            async with Cutter(port(server), cutting) as cutter:
                try:
                    async with ferrymq.connect(
                        cutter.url, container_id="me", timeout=5
                    ) as connection:
                        sender = await connection.sender(
                            "q",
                            name="out",
                            exactly_once=True,
                            unsettled=(
                                [Unsettled(tag, note) for tag, note in notes.items()]
                                if number
                                else None
                            ),
                        )
                        for tag, note in list(notes.items()):
                            if not number:
                                await sender.send(Message.decode(note), delivery_tag=tag, hold=True)
                        for tag, error in (await sender.resumed()).items():
                            if error is not None:
                                raise error
                            del notes[tag]
                            sender.settle(tag)
                        await connection.session()
                        if not bytes:
                            break
                        await sender.detach()
                except ferrymq.AmqpError:
                    if not number and "q" not in server.broker.default.nodes:
                        # It never got as far as its target.
                        return
        bodies = []
        async with ferrymq.connect(server.url) as connection:
            receiver = await connection.receiver("q", credit=0)
            receiver.add_credit(100)
            await receiver.drain()
            for _ in range(receiver.queued):
                bodies.append((await receiver.receive()).message.body)
        assert sorted(bodies) == list(range(10))


@pytest.mark.spec("2.6.13", "2.6.12")
@settings(max_examples=20, deadline=None)
@given(cuts=st.lists(bytes_passed, min_size=1, max_size=5))
def test_a_writer_that_dies_sends_each_message_once(cuts: list[int]) -> None:
    asyncio.run(asyncio.wait_for(dying_writer(cuts), 30))


async def test_a_lost_receiver_keeps_what_it_has() -> None:
    """Nobody else gets what it has not decided on, until it is closed."""
    async with BrokerServer(CONFIG) as server, ferrymq.connect(server.url) as other:
        await (await other.sender("q")).send_many([Message(n) for n in range(3)])
        cutter = Cutter(port(server), [])
        async with (
            cutter,
            ferrymq.connect(cutter.url, container_id="me", reconnect=POLICY) as connection,
        ):
            receiver = await connection.receiver("q", name="in", exactly_once=True)
            async with asyncio.timeout(20):
                held = [await receiver.receive() for _ in range(3)]
                rival = await other.receiver("q")
                connection.transport.abort()
                while cutter.connections < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
                await connection.session()
                await held[0].accept()
                await held[1].release()
                # Released, it may come to either.
                await rival.close()
                again = await receiver.receive()
                assert again.message.body == 1
                await asyncio.gather(again.accept(), held[2].accept())
        assert queue(server).message_count() == 0


async def test_outcomes_that_were_written_down_are_applied_once() -> None:
    """Told once more they are those of the same deliveries, and never of later ones."""
    async with BrokerServer(CONFIG) as server:
        async with ferrymq.connect(server.url, container_id="me") as connection:
            await (await connection.sender("q")).send_many([Message(n) for n in range(4)])
            receiver = await connection.receiver("q", name="in", exactly_once=True)
            taken = [await receiver.receive(timeout=20) for _ in range(4)]
            connection.transport.abort()
        notes = [Unsettled(d.tag, d.payload, Accepted()) for d in taken[:2]]
        for _ in range(4):
            async with ferrymq.connect(server.url, container_id="me") as connection:
                receiver = await connection.receiver(
                    "q", name="in", exactly_once=True, unsettled=notes
                )
                assert await receiver.resumed(timeout=20) == {d.tag: None for d in taken[:2]}
                others = [await receiver.receive(timeout=20) for _ in range(2)]
                assert [d.message.body for d in others] == [2, 3]
                connection.transport.abort()
        assert queue(server).message_count() == 2
