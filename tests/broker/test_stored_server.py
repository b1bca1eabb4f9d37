"""A server with a store: what it keeps, what it says before it is ready, how it fails."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

import ferrymq
from ferrymq import ConnectionClosed, Message
from ferrymq_broker.broker import Broker
from ferrymq_broker.config import Config, Http, Listener, Queue, Store
from ferrymq_broker.nodes.paging.pager import pager_of
from ferrymq_broker.nodes.queues.queue import Queue as NodeQueue
from ferrymq_broker.recovery.recover import recover
from ferrymq_broker.server import BrokerServer
from ferrymq_broker.store.disk import RealFile
from ferrymq_broker.store.errors import StoreDamaged, StoreError, StoreLocked, StoreVersionError
from ferrymq_broker.store.paged_out_file import PAGED_OUT_NAME
from ferrymq_broker.store.store import Store as AnyStore

SEGMENT = 64 * 1024


def config(path: Path | None, **more: object) -> Config:
    """A broker on a free port that keeps things in `path`."""
    return Config.model_validate(
        {
            "listener": [Listener(url="amqp://127.0.0.1:0")],
            "store": Store(path=path, segment_bytes=SEGMENT),
            "http": Http(url="http://127.0.0.1:0"),
            **more,
        }
    )


async def get(server: BrokerServer, path: str) -> tuple[int, str]:
    assert server.monitoring is not None
    async with (
        aiohttp.ClientSession() as session,
        session.get(server.monitoring.url + path) as response,
    ):
        return response.status, await response.text()


async def send(server: BrokerServer, *bodies: str, durable: bool = True) -> None:
    async with ferrymq.connect(server.url) as connection:
        sender = await connection.sender("q")
        for body in bodies:
            await sender.send(Message(body=body, durable=durable))


async def receive(server: BrokerServer, count: int) -> list[object]:
    async with ferrymq.connect(server.url) as connection:
        receiver = await connection.receiver("q", credit=count)
        found = []
        for _ in range(count):
            delivery = await receiver.receive(timeout=10)
            found.append(delivery.message.body)
            await delivery.accept()
        return found


class Disk:
    """Writes to the journal: fail with `error` while it is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: OSError | None = None
        self.tried = threading.Event()
        write = RealFile.write

        def fragile(
            file: RealFile, position: int, parts: Sequence[bytes], sync: bool = True
        ) -> None:
            if self.error is not None:
                self.tried.set()
                raise self.error
            write(file, position, parts, sync)

        monkeypatch.setattr(RealFile, "write", fragile)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while True:
            if condition():
                return
            await asyncio.sleep(0.001)


# -- what is kept -----------------------------------------------------------------------------


async def test_what_is_durable_is_there_after_a_restart(tmp_path: Path) -> None:
    async with BrokerServer(config(tmp_path)) as server:
        await send(server, "one", "two", "three")
        await send(server, "gone", durable=False)
        assert await receive(server, 1) == ["one"]
    async with BrokerServer(config(tmp_path)) as server:
        assert await receive(server, 2) == ["two", "three"]
    async with BrokerServer(config(tmp_path)) as server:
        queue = server.broker.default.find("q")
        assert queue is not None and queue.describe()["available"] == 0


async def test_the_directory_is_made_with_those_above_it(tmp_path: Path) -> None:
    async with BrokerServer(config(tmp_path / "a" / "b")) as server:
        await send(server, "one")
    assert (tmp_path / "a" / "b" / "format").exists()


async def test_without_a_store_nothing_is_written(tmp_path: Path, disk: Disk) -> None:
    disk.error = OSError(errno.EIO, "no disk")
    async with BrokerServer(config(None)) as server:
        await send(server, "one")
    assert not disk.tried.is_set()


async def test_messages_leave_memory_when_they_are_too_many(tmp_path: Path) -> None:
    settings = config(tmp_path, alarms={"memory": 10_000_000})
    paged = settings.model_copy(
        update={"store": settings.store.model_copy(update={"page_out": 100_000})}
    )
    async with BrokerServer(paged) as server:
        bodies = [f"{number}" + "x" * 1000 for number in range(500)]
        await send(server, *bodies, durable=False)
        assert server.broker.agenda.held < 200_000
        assert await receive(server, 500) == bodies
    assert not (tmp_path / "pages").exists()


async def test_what_is_paged_out_is_so_after_a_restart(tmp_path: Path) -> None:
    settings = config(tmp_path, alarms={"memory": 10_000_000})
    paged = settings.model_copy(
        update={"store": settings.store.model_copy(update={"page_out": 100_000})}
    )
    bodies = [f"{number}" + "x" * 1000 for number in range(500)]
    file = tmp_path / PAGED_OUT_NAME
    async with BrokerServer(paged) as server:
        await send(server, *bodies)
    for _ in range(2):
        assert file.exists()
        async with BrokerServer(paged) as server:
            assert not file.exists()
            pager = pager_of(server.broker.agenda)
            assert pager is not None and pager.messages > 300
            assert server.broker.agenda.held < 200_000
            queue = server.broker.default.nodes["q"]
            assert isinstance(queue, NodeQueue) and queue.available == 500
    async with BrokerServer(paged) as server:
        assert await receive(server, 500) == bodies
    assert not file.exists()


# -- before it is ready -----------------------------------------------------------------------


class Slowly:
    """A recovery that waits in its middle."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()
        monkeypatch.setattr("ferrymq_broker.server.storage.recover", self)

    def __call__(
        self,
        broker: Broker,
        store: AnyStore,
        progress: Callable[[str, int, int], None],
        unmap: Callable[[], object] | None,
    ) -> object:
        progress("recovering messages", 43_000, 100_000)
        self.reached.set()
        assert self.go_on.wait(10)
        progress("recovering messages", 99_000, 100_000)
        return recover(broker, store, progress, unmap)


async def test_it_says_how_far_it_is_and_takes_nobody_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slowly = Slowly(monkeypatch)
    heard: list[tuple[str, int, int]] = []
    server = BrokerServer(config(tmp_path), on_progress=lambda *said: heard.append(said))
    starting = asyncio.create_task(server.start())
    await until(slowly.reached.is_set)
    await until(lambda: len(heard) == 2)
    assert heard == [("checking the store", 0, 0), ("recovering messages", 43_000, 100_000)]
    assert (await get(server, "/livez"))[0] == 200
    status, text = await get(server, "/readyz")
    assert status == 503 and "recovering messages, 43 %" in text
    assert (await get(server, "/metrics"))[0] == 503
    assert server.addresses == []
    slowly.go_on.set()
    await starting
    assert (await get(server, "/readyz"))[0] == 200
    await server.close()


async def test_who_gives_up_waiting_leaves_the_store_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with BrokerServer(config(tmp_path)) as server:
        await send(server, "one")
    with monkeypatch.context() as patched:
        slowly = Slowly(patched)
        starting = asyncio.create_task(BrokerServer(config(tmp_path)).start())
        await until(slowly.reached.is_set)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        # The store belongs to the thread until that has ended.
        with pytest.raises(StoreLocked):
            await BrokerServer(config(tmp_path)).start()
        slowly.go_on.set()
        opener = [thread for thread in threading.enumerate() if thread.name == "store-open"]
        for thread in opener:
            await asyncio.to_thread(thread.join, 10)
    async with BrokerServer(config(tmp_path)) as server:
        assert await receive(server, 1) == ["one"]


async def test_what_is_declared_comes_after_what_was_stored(tmp_path: Path) -> None:
    async with BrokerServer(config(tmp_path)) as server:
        await send(server, "one")
    declared = config(tmp_path, queue=[Queue(name="q", max_length=7)])
    async with BrokerServer(declared) as server:
        queue = server.broker.default.find("q")
        assert queue is not None
        described = queue.describe()
        assert (described["available"], queue.policy.max_length) == (1, 7)  # type: ignore[attr-defined]


# -- what it cannot use -----------------------------------------------------------------------


async def test_two_brokers_do_not_share_a_store(tmp_path: Path) -> None:
    async with BrokerServer(config(tmp_path)):
        with pytest.raises(StoreLocked, match="in use"):
            await BrokerServer(config(tmp_path)).start()


async def test_a_store_of_a_newer_version(tmp_path: Path) -> None:
    async with BrokerServer(config(tmp_path)):
        pass
    format = tmp_path / "format"
    format.write_text(format.read_text().replace("format: 2", "format: 9"))
    with pytest.raises(StoreVersionError, match="format 9"):
        await BrokerServer(config(tmp_path)).start()


async def test_a_store_that_is_damaged(tmp_path: Path) -> None:
    async with BrokerServer(config(tmp_path)) as server:
        await send(server, "precious")
    data = tmp_path / "data.mdb"
    data.write_bytes(data.read_bytes().replace(b"precious", b"previous"))
    with pytest.raises(StoreDamaged, match=r"data\.mdb"):
        await BrokerServer(config(tmp_path)).start()


async def test_a_path_that_is_no_directory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for path in (file, file / "inside"):
        with pytest.raises(StoreError, match="cannot be used: "):
            await BrokerServer(config(path)).start()


# -- when the disk fails ----------------------------------------------------------------------


async def test_nobody_hears_anything_after_the_disk_has_failed(tmp_path: Path, disk: Disk) -> None:
    failures: list[Exception] = []
    server = BrokerServer(config(tmp_path), on_failure=failures.append)
    await server.start()
    async with ferrymq.connect(server.url) as connection:
        sender = await connection.sender("q")
        await sender.send(Message(body="kept", durable=True))
        disk.error = OSError(errno.EIO, "Input/output error")
        with pytest.raises(ConnectionClosed):
            await sender.send(Message(body="lost", durable=True))
        with pytest.raises(ConnectionClosed):
            await connection.wait_closed(timeout=10)
    assert len(failures) == 1 and "Input/output error" in str(failures[0])
    assert server.failure is failures[0]
    assert not server.connections
    status, text = await get(server, "/readyz")
    assert status == 503 and "Input/output error" in text
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", server.port)
    with pytest.raises(StoreError, match="Input/output error"):
        await server.close()
    disk.error = None
    async with BrokerServer(config(tmp_path)) as server:
        assert await receive(server, 1) == ["kept"]


async def test_a_program_hears_of_it_without_a_callback(tmp_path: Path, disk: Disk) -> None:
    with pytest.raises(StoreError, match="Input/output error"):
        async with BrokerServer(config(tmp_path)) as server:
            disk.error = OSError(errno.EIO, "Input/output error")
            with pytest.raises(ConnectionClosed):
                await send(server, "lost")


# -- when it is full --------------------------------------------------------------------------


async def test_producers_wait_while_the_disk_is_full(tmp_path: Path, disk: Disk) -> None:
    async with BrokerServer(config(tmp_path)) as server, ferrymq.connect(server.url) as connection:
        sender = await connection.sender("q")
        await sender.send(Message(body="before", durable=True))
        disk.error = OSError(errno.ENOSPC, "No space left on device")
        sending = asyncio.create_task(sender.send(Message(body="while", durable=True)))
        await until(lambda: "disk" in server.broker.alarms)
        status, text = await get(server, "/readyz")
        assert status == 200 and '"alarms": ["disk"]' in text
        assert not sending.done()
        disk.error = None
        await asyncio.wait_for(sending, 10)
        await until(lambda: not server.broker.alarms)
        await sender.send(Message(body="after", durable=True))
        assert await receive(server, 3) == ["before", "while", "after"]


async def test_the_largest_size_raises_the_alarm(tmp_path: Path) -> None:
    limited = config(tmp_path)
    limited = limited.model_copy(
        update={"store": limited.store.model_copy(update={"max_bytes": 600_000})}
    )
    async with BrokerServer(limited) as server, ferrymq.connect(server.url) as connection:
        sender = await connection.sender("q")
        receiver = await connection.receiver("q", credit=0)
        pending = []
        while "disk" not in server.broker.alarms:
            # Not ready(): the alarm takes credit back, perhaps just while waiting for it.
            if sender.credit:
                pending.append(sender.send_nowait(Message(body=b"x" * 5000, durable=True)))
            await asyncio.sleep(0)
        await asyncio.wait_for(asyncio.gather(*pending), 10)
        # Consumers go on, and make room.
        receiver.add_credit(len(pending))
        for _ in pending:
            await (await receiver.receive(timeout=10)).accept()
        await until(lambda: not server.broker.alarms)
        await sender.send(Message(body="one more", durable=True))


# -- what is told of it -----------------------------------------------------------------------


async def test_figures_of_the_store(tmp_path: Path) -> None:
    async with BrokerServer(config(tmp_path)) as server:
        await send(server, *[f"{number}" for number in range(50)])
        _, text = await get(server, "/metrics")
        found = {
            sample.name: sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name.startswith("ferrymq_store_") and "le" not in sample.labels
        }
        kinds = {
            sample.labels["kind"]
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "ferrymq_store_bytes"
        }
        assert kinds == {"journal", "records", "pages"}
        batches = found["ferrymq_store_batches_total"]
        assert batches >= 50
        assert found["ferrymq_store_sync_seconds_count"] == batches
        assert 0 < found["ferrymq_store_sync_seconds_sum"] < 60
        assert found["ferrymq_store_batch_bytes_sum"] >= 4096 * batches
        assert found["ferrymq_store_last_batch"] == server.broker.agenda.changes.stable
        assert found["ferrymq_store_applied_lag_batches"] <= batches
        assert found["ferrymq_store_changes_total"] >= 51
        assert found["ferrymq_store_last_batch_timestamp_seconds"] > 1_600_000_000
        assert found["ferrymq_store_disk_alarm"] == 0


async def test_without_a_store_there_are_no_figures(tmp_path: Path) -> None:
    async with BrokerServer(config(None)) as server:
        assert "ferrymq_store_" not in (await get(server, "/metrics"))[1]
