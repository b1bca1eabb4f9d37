"""Every await of the client, cancelled at every step: nothing is left behind, nothing is lost.

What a scenario does is cancelled at its first step, then at its second, and so on to the last.
After each the connection goes on working, and both sides have what they had before: links,
transactions, subscriptions, termini, deliveries.
"""

from __future__ import annotations

import ast
import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from pathlib import Path
from typing import Any

import pytest

import ferrymq
from ferrymq import Message
from ferrymq.engine.pairing import LINK_PAIR
from ferrymq.management import Replies
from ferrymq_broker.config import Config
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.server import BrokerServer
from ferrymq_types.transport import ReceiverSettleMode
from tests.client.peer import Peer
from tests.client.stepped import AIO, Moment, Stepped

pytestmark = [pytest.mark.usefixtures("few_objects"), pytest.mark.timeout(300)]

MESSAGES = 4
REPLIES: list[Replies] = ["pair", "link", "dynamic"]


class World:
    """The broker, and what a scenario has told of its messages."""

    def __init__(self, server: BrokerServer) -> None:
        self.server = server
        # Bodies of messages that may be gone from the queue `work`.
        self.accepted: set[object] = set()
        # How many may have been sent to `out`, and how many have been for sure.
        self.begun = 0
        self.sent = 0

    @property
    def url(self) -> str:
        return self.server.url

    def queue(self, name: str) -> Queue:
        found = self.server.broker.default.nodes[name]
        assert isinstance(found, Queue)
        return found

    @property
    def quiet(self) -> bool:
        """Whether the broker has no transaction, subscription, terminus or delivery."""
        broker = self.server.broker
        news = broker.default.nodes["news"]
        assert isinstance(news, Topic)
        return (
            not any(handler.parts.transactions._open for handler in broker.handlers)
            and not news.subscriptions()
            and not len(broker.shared.termini)
            and self.queue("work").acquired == 0
            and self.queue("out").acquired == 0
        )


Scenario = Callable[[ferrymq.Connection, World], Coroutine[Any, Any, None]]


async def links(connection: ferrymq.Connection, world: World) -> None:
    async with connection.session() as session:
        async with session.sender("out", name="a") as sender:
            world.begun += 3
            await sender.send(Message(1))
            await sender.send_many([Message(2)])
            await sender.send_encoded([Message(3).encode()])
            world.sent += 3
            await sender.ready()
        async with session.receiver("work", name="b", credit=0) as receiver:
            receiver.add_credit(2)
            await receiver.drain()
            delivery = await receiver.receive()
            world.accepted.add(delivery.message.body)
            await delivery.accept()
            await (await receiver.receive()).release()
    async with connection.session() as session:
        receiver = await session.receiver("work", credit=0)
        receiver.add_credit(2)
        for delivery in await receiver.receive_many(1):
            await delivery.release()
        await receiver.detach()
    second = ReceiverSettleMode.SECOND
    async with connection.receiver("work", credit=1, rcv_settle_mode=second) as receiver:
        async with await receiver.receive() as delivery:
            world.accepted.add(delivery.message.body)
        await (await receiver.receive()).release()
        await (await receiver.receive()).modify(undeliverable_here=True)
        delivery = await receiver.receive()
        world.accepted.add(delivery.message.body)
        await delivery.reject("example:bad")
    async for delivery in connection.receiver("work"):
        world.accepted.add(delivery.message.body)
        await delivery.accept()
        break


async def transactions(connection: ferrymq.Connection, world: World) -> None:
    async with (
        connection.sender("out") as sender,
        connection.receiver("work", credit=0) as receiver,
    ):
        async with connection.transaction() as txn:
            world.begun += 1
            await sender.send(Message(1), transaction=txn)
            receiver.add_credit(1, transaction=txn)
            delivery = await receiver.receive()
            world.accepted.add(delivery.message.body)
            await delivery.accept()
        world.sent += 1
        txn = await connection.transaction()
        try:
            receiver.add_credit(5, transaction=txn)
            await (await receiver.receive()).accept()
        finally:
            await txn.rollback()
    async with connection.session() as session, session.sender("out") as sender:
        async with session.transaction() as txn:
            world.begun += 1
            await txn.send(sender, Message(2))
        world.sent += 1


async def lasting(connection: ferrymq.Connection, world: World) -> None:
    for _ in range(2):
        async with (
            connection.receiver("news", name="mine", durable=True),
            connection.receiver("work", name="once", exactly_once=True, credit=1) as receiver,
            connection.sender("out", name="kept", exactly_once=True) as sender,
        ):
            world.begun += 1
            await sender.send(Message(1))
            world.sent += 1
            delivery = await receiver.receive()
            world.accepted.add(delivery.message.body)
            await delivery.accept()
            await sender.resumed()
            await receiver.resumed()


async def others(connection: ferrymq.Connection, world: World) -> None:
    async with connection.pair("$management") as pair:
        request: dict[str, object] = {"operation": "QUERY", "type": "org.amqp.management"}
        await pair.request(Message(None, application_properties=request))
    await connection.committed("g", "m")
    await connection.fence("g", "m")
    async with connection.chunk_reader("clicks::0", until=2) as reader:
        while await reader.receive() is not None:
            pass
    async for _ in connection.chunk_reader("clicks::0", until=2):
        pass


async def managing(connection: ferrymq.Connection, world: World) -> None:
    async with connection.management() as management:
        await management.create("queue", "made", {"max-length": 5})
        await management.read("queue", "made")
        await management.update("queue", "made", {"max-length": 5})
        await management.peek("queue", "made")
        await management.purge("queue", "made")
        await management.move("made", "out")
        await management.delete("queue", "made")
        async for _ in management.query("queue", ["name"]):
            pass
    async with connection.session() as session:
        for replies in REPLIES:
            async with session.management(replies=replies) as management:
                await management.request("READ", "broker", "broker")


async def connecting(connection: ferrymq.Connection, world: World) -> None:
    async with ferrymq.connect(world.url) as second, second.sender("out") as sender:
        world.begun += 1
        await sender.send(Message(1), settled=True)
        world.sent += 1
        await second.close()
        await second.wait_closed()


async def asking(connection: ferrymq.Connection, world: World) -> None:
    # The links for requests stay attached as long as their connection.
    async with ferrymq.connect(world.url) as second:
        wanted: dict[str, object] = {"operation": "QUERY", "type": "org.amqp.management"}
        request = Message(None, application_properties=wanted)
        await second.request("$management", request)
        await asyncio.gather(*[second.request("$management", request) for _ in range(2)])


async def working(connection: ferrymq.Connection, world: World) -> None:
    async def handle(delivery: ferrymq.Delivery) -> None:
        world.accepted.add(delivery.message.body)
        if len(world.accepted) == 2:
            worker.stop()
        for _ in range(50):
            await asyncio.sleep(0)

    worker = ferrymq.Worker(world.url, "work", handle, concurrency=1)
    await worker.run()


SCENARIOS: list[Scenario] = [
    links,
    transactions,
    lasting,
    others,
    managing,
    connecting,
    asking,
    working,
]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    config = Config.model_validate(
        {
            "listener": [{"url": "amqp://127.0.0.1:0"}],
            "queue": [{"name": "work"}, {"name": "out"}],
            "topic": [{"name": "news"}],
            "stream": [{"name": "clicks"}],
        }
    )
    async with BrokerServer(config) as server:
        async with ferrymq.connect(server.url) as connection, connection.sender("clicks") as clicks:
            await clicks.send_many([Message(number) for number in range(3)])
        yield World(server)


async def wait_until(condition: Callable[[], bool], about: Callable[[], object]) -> None:
    """Run the event loop until both sides have read what was written."""
    for _ in range(20_000):
        if condition():
            return
        await asyncio.sleep(0.0005)
    raise AssertionError(about())


async def refill(connection: ferrymq.Connection, world: World) -> None:
    """Have nothing but the messages that a scenario takes."""
    for name in ("work", "out"):
        async with connection.receiver(name, credit=0) as receiver:
            receiver.add_credit(1000)
            await receiver.drain()
            for _ in range(receiver.queued):
                await (await receiver.receive()).accept()
    async with connection.sender("work") as sender:
        await sender.send_many([Message(number) for number in range(MESSAGES)])
    world.accepted.clear()
    world.begun = world.sent = 0


async def take_stock(
    connection: ferrymq.Connection, world: World, before: set[asyncio.Task[Any]]
) -> None:
    """Both sides have what they had before, and every message is somewhere."""

    def at_rest() -> bool:
        names = [name for own in connection.sessions for name, _ in own.engine.links]
        return (
            world.quiet
            and len(world.server.broker.handlers) == 1
            and len(connection.sessions) <= 1
            and all(name.startswith("control-") for name in names)
            and not any(session.leaving for session in connection.sessions)
            and not asyncio.all_tasks() - before - {asyncio.current_task()} - broker_tasks(before)
        )

    await wait_until(at_rest, lambda: (connection.sessions, asyncio.all_tasks() - before))
    left = set()
    async with connection.receiver("work", mode="copy", credit=0) as receiver:
        receiver.add_credit(100)
        await receiver.drain()
        left = {(await receiver.receive()).message.body for _ in range(receiver.queued)}
    assert left | world.accepted == set(range(MESSAGES))
    assert world.sent <= world.queue("out").message_count() <= world.begun


def broker_tasks(before: set[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
    """Tasks that are the broker's own."""
    return {
        task
        for task in asyncio.all_tasks() - before
        if "ferrymq_broker" in getattr(task.get_coro(), "cr_code", before).__repr__()
    }


@pytest.mark.parametrize("moment", list(Moment), ids=lambda moment: moment.value)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_nothing_is_left_behind(world: World, scenario: Scenario, moment: Moment) -> None:
    step = 0
    unseen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
    async with ferrymq.connect(
        world.url, container_id="me", timeout=20, desired_capabilities=[LINK_PAIR]
    ) as connection:
        before = asyncio.all_tasks()
        while True:
            step += 1
            await refill(connection, world)
            stepped = Stepped(scenario(connection, world), step, moment)

            async def run(work: Stepped = stepped) -> None:
                await work

            async with asyncio.timeout(30):
                (ended,) = await asyncio.gather(asyncio.create_task(run()), return_exceptions=True)
            try:
                await take_stock(connection, world, before)
            except BaseException as error:
                error.add_note(f"step {step}: {sorted(stepped.suspended)}")
                raise
            if not stepped.struck:
                assert ended is None, ended
                break
            assert isinstance(ended, asyncio.CancelledError | type(None)), (step, ended)
    gc.collect()
    assert not unseen
    assert step > 5


@pytest.mark.parametrize("moment", list(Moment), ids=lambda moment: moment.value)
async def test_a_scripted_peer_is_left_with_nothing(moment: Moment) -> None:
    """The peer counts links and sessions itself, with an engine that has never had another user."""

    async def script(connection: ferrymq.Connection) -> None:
        async with connection.session() as session:
            async with session.sender("out") as sender:
                await sender.send_many([Message(1), Message(2)])
            async with session.receiver("work", rcv_settle_mode=ReceiverSettleMode.SECOND) as work:
                await (await work.receive()).accept()
                await work.drain()
        async with connection.receiver("again", name="again") as work:
            await (await work.receive()).release()

    step, struck = 0, True
    async with Peer() as peer, ferrymq.connect(peer.url) as connection:
        while struck:
            step += 1
            for address in ("work", "again"):
                peer.put(address, *range(10))
            stepped = Stepped(script(connection), step, moment)

            async def run(work: Stepped = stepped) -> None:
                await work

            async with asyncio.timeout(20):
                await asyncio.gather(asyncio.create_task(run()), return_exceptions=True)
                # A round trip.
                await (await connection.session()).close()
            struck = stepped.struck
            sessions = peer.connection.engine.channels.by_remote.values()

            def at_rest(sessions: Collection[Any] = sessions) -> bool:
                return len(sessions) <= 1 and not any(own.links for own in sessions)

            await wait_until(at_rest, lambda step=step, sessions=sessions: (step, [*sessions]))
            assert len(connection.sessions) <= 1
            assert not any(own.links or own.engine.links for own in connection.sessions)
    assert step > 10


REDIRECTED = "needs two brokers: test_cancelled_redirects.py"
# Functions that wait, and that no scenario is suspended in, with the reason.
ELSEWHERE: dict[str, list[tuple[str, str]]] = {
    "an iteration is cancelled too, but does not show where it waits": [
        ("chunks.py", "ChunkReader.__anext__"),
        ("chunks.py", "OpeningChunkReader._iterate"),
        ("management.py", "ManagementClient.page"),
        ("management.py", "ManagementClient.query"),
        ("receiver.py", "Receiver.__anext__"),
        ("receiver_loop.py", "_deliveries"),
    ],
    "runs without a caller": [
        ("control.py", "Control._roll_back"),
        ("control.py", "Control._undo"),
        ("link.py", "Link._run_round"),
        ("link_redirects.py", "LinkRedirects.close"),
        ("link_redirects.py", "_close"),
        ("recovery.py", "Recovery._attempt"),
        ("recovery.py", "Recovery._restore"),
        ("recovery.py", "Recovery._run"),
        ("recovery.py", "Recovery._run_session"),
        ("session.py", "Session.restore"),
        ("transport.py", "EngineTransport._secure"),
    ],
    "waits for what a peer does as RabbitMQ: test_session_for_each_link.py": [
        ("session.py", "Session._usable"),
        ("session.py", "Session.ended_idle"),
        ("session.py", "Session.for_links"),
    ],
    REDIRECTED: [
        ("connection.py", "Connection.partitioned_sender.<locals>.open"),
        ("link_redirects.py", "LinkRedirects.attach_at"),
        ("link_redirects.py", "LinkRedirects.connection_to"),
        ("link_redirects.py", "LinkRedirects.follow"),
        ("link_redirects.py", "_attach"),
        ("partitioned_sender.py", "PartitionedSender._attach"),
        ("partitioned_sender.py", "PartitionedSender._attach.<locals>.attach"),
        ("partitioned_sender.py", "PartitionedSender._refresh"),
        ("partitioned_sender.py", "PartitionedSender._sender_for"),
        ("partitioned_sender.py", "PartitionedSender.close"),
        ("partitioned_sender.py", "PartitionedSender.read_placement"),
        ("partitioned_sender.py", "PartitionedSender.send"),
        ("partitioned_sender.py", "PartitionedSender.send_many"),
        ("waiting.py", "all_of"),
    ],
    "waits for a function of the user: test_authorize.py": [
        ("link.py", "Link._authorize"),
    ],
    "never waits: asyncio's time-out, which it hands on, starts and stops a timer": [
        ("waiting.py", "Deadline.__aenter__"),
        ("waiting.py", "Deadline.__aexit__"),
    ],
    "runs in the tasks of a worker: test_workers.py": [
        ("worker.py", "Worker._attach_back"),
        ("worker.py", "Worker._call"),
        ("worker.py", "Worker._give_up"),
        ("worker.py", "Worker._handle"),
        ("worker.py", "Worker._hold"),
        ("worker.py", "Worker._link_back"),
        ("worker.py", "Worker._on_failure"),
        ("worker.py", "Worker._put_off"),
        ("worker.py", "Worker._start_each"),
        ("worker.py", "Worker._told"),
        ("worker.py", "Worker._told_within"),
        ("worker.py", "Worker._work_on"),
    ],
    "is for what the blocking client has opened in vain: test_interruptions.py": [
        ("link.py", "Link.take_back"),
    ],
    "closes as the block of an opening does: test_not_awaited.py": [
        ("opening.py", "Opened.__aexit__"),
    ],
    "waits only for credit, room or a name: test_cancellation.py, test_given_up_links.py": [
        ("connection.py", "Connection.hand_over"),
        ("connection.py", "Connection.writable"),
        ("control.py", "Control.post"),
        ("sender.py", "Sender._before_leave"),
        ("sender.py", "Sender._wait"),
        ("sender.py", "Sender.ready"),
        ("session.py", "Session._free"),
    ],
    "waits only for a connection that is lost, or was: test_reconnect.py, test_fences.py": [
        ("connection.py", "Connection.connected"),
        ("connection.py", "Connection.wait_closed"),
        ("delivery.py", "Delivery.confirmed"),
        ("fencing.py", "was_committed"),
        ("receiver.py", "Receiver.resumed"),
        ("recovery.py", "Recovery.ended"),
        ("recovery.py", "Recovery.wait"),
        ("sender.py", "Sender.resumed"),
        ("transaction.py", "Transaction._find_out"),
        ("transaction.py", "Transaction._tell"),
    ],
    "is of a connection that is made in another way: test_tokens.py, test_connecting.py": [
        ("tokens.py", "_asked"),
        ("tokens.py", "bearer"),
        ("websocket.py", "_run"),
        ("websocket.py", "open_websocket"),
        ("websocket_stream.py", "WebSocketStream._read"),
        ("websocket_stream.py", "WebSocketStream._write"),
        ("websocket_stream.py", "WebSocketStream.run"),
    ],
}


def functions_that_wait() -> set[tuple[str, str]]:
    """The functions of the client with an await in them, by file and qualified name."""
    found: set[tuple[str, str]] = set()

    def visit(node: ast.AST, file: str, path: list[str], function: str | None) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                visit(child, file, [*path, child.name], None)
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                name = ".".join([*path, child.name])
                inner = child if isinstance(child, ast.AsyncFunctionDef) else None
                visit(child, file, [*path, child.name, "<locals>"], name if inner else None)
            else:
                if function and isinstance(child, ast.Await | ast.AsyncFor | ast.AsyncWith):
                    found.add((file, function))
                visit(child, file, path, function)

    for source in Path(AIO).glob("*.py"):
        visit(ast.parse(source.read_text("utf-8")), source.name, [], None)
    return found


async def test_every_function_that_waits_is_suspended_in_some_scenario(world: World) -> None:
    visited: set[tuple[str, str]] = set()
    async with ferrymq.connect(
        world.url, container_id="me", desired_capabilities=[LINK_PAIR]
    ) as connection:
        for scenario in SCENARIOS:
            await refill(connection, world)
            stepped = Stepped(scenario(connection, world), 1_000_000, Moment.EARLY)
            await stepped
            visited |= stepped.visited
    elsewhere = {function for functions in ELSEWHERE.values() for function in functions}
    assert sorted(functions_that_wait() - visited - elsewhere) == []
    assert sorted(elsewhere - functions_that_wait()) == []
