"""A pair of `ferrymq serve` with PostgreSQL: what survives the leader."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import uuid
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

import ferrymq
from ferrymq import ConnectionClosed, Message
from ferrymq_broker.replication.postgresql.database_schema import initialise
from tests.broker.replication.lasting_producer import LastingProducer
from tests.broker.replication.member_cluster import free_port
from tests.broker.test_process import serve
from tests.support.postgresql import PostgresqlPair

pytestmark = pytest.mark.once

FILE = """
advertise = "{url}"
[[listener]]
url = "{url}"
[http]
url = "{http}"
[store]
path = "{data}"
[replication]
engine = "postgresql"
url = "{database}"
cluster = "{cluster}"
name = "{name}"
lease = "1s"
step-down-after = "5s"
[log]
level = "info"
"""


class ServedMember:
    """A member in a process of its own."""

    def __init__(self, folder: Path, name: str, database: str, cluster: str) -> None:
        self.url = f"amqp://127.0.0.1:{free_port()}"
        self.http = f"http://127.0.0.1:{free_port()}"
        self.process: subprocess.Popen[str] | None = None
        self.file = folder / f"{name}.toml"
        self.file.write_text(
            FILE.format(
                url=self.url,
                http=self.http,
                data=folder / name,
                database=database,
                cluster=cluster,
                name=name,
            )
        )

    def start(self, stack: ExitStack) -> None:
        """Start the process, and wait until it serves or stands by."""
        self.process = stack.enter_context(serve("--config", str(self.file)))[0]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, and wait for the end of the process."""
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(20)

    async def until_ready(self) -> None:
        """Wait until the member serves."""
        async with asyncio.timeout(30), aiohttp.ClientSession() as session:
            while True:
                # The listeners of a member are opened anew when it changes its part.
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(f"{self.http}/readyz") as response:
                        if response.status == 200:
                            return
                await asyncio.sleep(0.01)

    async def until_it_knows(self, leader: str) -> None:
        """Wait until a standby has seen the leader's lease."""
        async with asyncio.timeout(30):
            while True:
                # The listeners of a member are opened anew when it changes its part.
                with contextlib.suppress(aiohttp.ClientError):
                    if (await self.describe())["leader"] == leader:
                        return
                await asyncio.sleep(0.01)

    async def describe(self) -> dict[str, object]:
        """What the member tells of the cluster."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.http}/management/v1/replication/replication") as response,
        ):
            found: dict[str, object] = json.loads(await response.text())
            return found


@asynccontextmanager
async def served_pair(
    folder: Path, pair: PostgresqlPair
) -> AsyncIterator[tuple[ServedMember, ServedMember]]:
    """A leader and a standby, of a cluster of their own."""
    cluster = uuid.uuid4().hex
    await asyncio.to_thread(initialise, pair.url(), cluster, None)
    one, two = (ServedMember(folder, name, pair.url(), cluster) for name in ("one", "two"))
    with ExitStack() as stack:
        await asyncio.to_thread(one.start, stack)
        await one.until_ready()
        await asyncio.to_thread(two.start, stack)
        await two.until_it_knows("one")
        yield one, two


async def send(url: str, *bodies: bytes) -> None:
    async with ferrymq.connect(url) as client, client.sender("orders") as sender:
        for body in bodies:
            await sender.send(Message(body, durable=True))


async def redirected(url: str, leader: str) -> None:
    """Check that a standby sends its clients to the leader."""
    with pytest.raises(ConnectionClosed, match=f"the leader is {leader}"):
        async with (
            ferrymq.connect(url, follow_redirects=False) as client,
            client.sender("orders"),
        ):
            pass


async def receive(url: str, count: int) -> list[bytes]:
    found = []
    async with ferrymq.connect(url) as client, client.receiver("orders") as receiver:
        for _ in range(count):
            delivery = await receiver.receive()
            found.append(delivery.message.body)
            await delivery.accept()
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_the_standby_takes_over(
    tmp_path: Path, pair: PostgresqlPair, number: signal.Signals
) -> None:
    async with served_pair(tmp_path, pair) as (one, two):
        await send(one.url, b"a", b"b", b"c")
        await redirected(two.url, "one")
        assert await receive(one.url, 1) == [b"a"]
        await asyncio.to_thread(one.signal, number)
        await two.until_ready()
        assert await receive(two.url, 2) == [b"b", b"c"]
        shown = await two.describe()
        assert (shown["role"], shown["term"], shown["synchronous"]) == ("leader", 2, True)
        # The old leader comes back as a standby.
        with ExitStack() as stack:
            await asyncio.to_thread(one.start, stack)
            await send(two.url, b"d")
            await one.until_it_knows("two")
            await redirected(one.url, "two")


async def test_a_leader_that_was_stopped_for_long_acknowledges_nothing(
    tmp_path: Path, pair: PostgresqlPair
) -> None:
    async with served_pair(tmp_path, pair) as (one, two):
        await send(one.url, b"a")
        async with (
            ferrymq.connect(one.url, reconnect=False, follow_redirects=False) as client,
            client.sender("orders") as sender,
        ):
            assert one.process is not None
            one.process.send_signal(signal.SIGSTOP)
            try:
                # The kernel keeps them for the leader.
                sending = [
                    asyncio.create_task(sender.send(Message(b"late", durable=durable)))
                    for durable in (True, False)
                ]
                await two.until_ready()
            finally:
                one.process.send_signal(signal.SIGCONT)
            ends = await asyncio.gather(*sending, return_exceptions=True)
        assert [type(end) for end in ends] == [ConnectionClosed, ConnectionClosed]
        assert await receive(two.url, 1) == [b"a"]
        await one.until_it_knows("two")


async def test_clients_go_on_when_the_database_fails_over(
    tmp_path: Path, pair: PostgresqlPair
) -> None:
    async with served_pair(tmp_path, pair) as (one, two):
        producer = LastingProducer([one.url, two.url])
        sent = producer.sent
        producing = asyncio.create_task(producer.run())
        try:
            await _until_more(sent, producing)
            await asyncio.to_thread(pair.primary.kill)
            await asyncio.to_thread(pair.promote)
            await _until_more(sent, producing)
        finally:
            producer.is_over = True
        await producing
        async with (
            ferrymq.connect([one.url, two.url]) as client,
            client.receiver("orders") as receiver,
        ):
            for body in sent:
                async with await receiver.receive() as delivery:
                    assert delivery.message.body == body
        # The server ends with the thread that starts it, so this thread has to wait.
        pair.rejoin()


async def _until_more(sent: list[bytes], producing: asyncio.Task[None]) -> None:
    """Wait until more was sent than now."""
    count = len(sent)
    async with asyncio.timeout(30):
        while len(sent) < count + 20 and not producing.done():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
