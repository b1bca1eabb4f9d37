"""Capture by a broker that runs: killed, refused, held back; nothing is missing or twice."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyarrow import parquet

import ferrymq
from ferrymq import Message
from ferrymq.capture import LocalPlace, claim, coverage
from ferrymq.capture.place import leftovers_in, names_in
from tests.interop.broker_process import BrokerProcess

PATIENCE = 30.0

CONFIG = """
[store]
path = "{path}/data"
segment-bytes = "256KiB"

[capture]
directory = "{path}/capture"
max-records = {records}
max-age = "{age}"

[log]
level = "debug"

[[stream]]
name = "orders"
partitions = 2
max-bytes = "4KiB"
segment-bytes = "1KiB"
capture = true
"""


@pytest.fixture
def settings() -> dict[str, object]:
    """What the configuration says."""
    return {"records": 40, "age": "200ms"}


@pytest.fixture
def broker(tmp_path: Path, settings: dict[str, object]) -> Iterator[BrokerProcess]:
    process = BrokerProcess(CONFIG.format(path=tmp_path, **settings))
    with process:
        yield process


async def publish(broker: BrokerProcess, numbers: range, ledger: dict[int, bool]) -> None:
    """Send numbers; the ledger says which were accepted. It ends when the broker does."""
    try:
        async with (
            ferrymq.connect(broker.url) as connection,
            connection.sender("orders") as sender,
        ):

            async def one(number: int) -> None:
                ledger[number] = False
                await sender.send(Message(b"%d " % number + bytes(100), durable=True))
                ledger[number] = True

            async with asyncio.TaskGroup() as group:
                for number in numbers:
                    group.create_task(one(number))
    except* (ferrymq.AmqpError, OSError):
        pass


def captured(path: Path) -> list[int]:
    """The numbers in files, in order."""
    folder = path / "capture" / "orders"
    numbers: list[int] = []
    for name in names_in(LocalPlace(folder)):
        bodies = parquet.ParquetFile(folder / name.path).read(["body"])["body"].to_pylist()
        numbers += [int(body.split()[0]) for body in bodies]
    return sorted(numbers)


async def first_offsets(broker: BrokerProcess) -> list[int]:
    """Where the partitions begin."""
    async with (
        ferrymq.connect(broker.url) as connection,
        connection.management() as management,
    ):
        stream = await management.read("stream", "orders")
    ranges = stream["ranges"]
    assert isinstance(ranges, list)
    return [each["first-offset"] for each in ranges]


def until(broker: BrokerProcess, what: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline, broker.log[-4000:]
        time.sleep(0.02)


def children(broker: BrokerProcess) -> list[int]:
    """The processes of capture there have been, by their numbers."""
    return [int(number) for number in re.findall(r"capture begins .*process=(\d+)", broker.log)]


@pytest.mark.crash
@pytest.mark.parametrize("seed", [1])
async def test_kills_lose_nothing_and_double_nothing(
    broker: BrokerProcess, tmp_path: Path, seed: int
) -> None:
    """The broker and the process that writes are killed in turn, at any moment, while messages
    come in that the limits of the stream would not keep."""
    choose = random.Random(seed)
    ledger: dict[int, bool] = {}
    until(broker, lambda: len(children(broker)) == 1)
    for turn in range(6):
        numbers = range(1000 * turn, 1000 * turn + 300)
        sending = asyncio.create_task(publish(broker, numbers, ledger))
        await asyncio.sleep(choose.uniform(0.0, 0.5))
        if turn % 2:
            await asyncio.to_thread(broker.kill)
            await asyncio.wait_for(sending, PATIENCE)
            await asyncio.to_thread(broker.start)
        else:
            try:
                os.kill(children(broker)[-1], signal.SIGKILL)
            except ProcessLookupError:
                # It has just been started, or not yet again.
                pass
            await asyncio.wait_for(sending, PATIENCE)
    # What is open is closed at the end.
    await asyncio.to_thread(broker.stop)
    found = captured(tmp_path)
    assert len(set(found)) == len(found)
    assert {number for number, accepted in ledger.items() if accepted} <= set(found) <= set(ledger)
    place = LocalPlace(tmp_path / "capture" / "orders")
    covered = coverage(names_in(place))
    assert all(len(each.ranges) == 1 and each.first == 0 for each in covered.values())
    assert not any(each.overlaps for each in covered.values())
    assert leftovers_in(place) == []
    # What was captured has not been kept for longer.
    await asyncio.to_thread(broker.start)
    assert min(await first_offsets(broker)) > 0


async def test_what_is_not_captured_is_not_dropped(broker: BrokerProcess, tmp_path: Path) -> None:
    """Somebody has put files of another stream there: it waits until they are gone."""
    folder = tmp_path / "capture" / "orders"
    until(broker, lambda: "a stream is captured" in broker.log)
    await asyncio.to_thread(broker.stop)
    (folder / "_stream.json").unlink()
    claim(LocalPlace(folder), "orders", "another")
    await asyncio.to_thread(broker.start)
    ledger: dict[int, bool] = {}
    await publish(broker, range(300), ledger)
    assert all(ledger.values())
    until(broker, lambda: "a stream cannot be captured" in broker.log)
    assert "another incarnation" in broker.log
    assert await first_offsets(broker) == [0, 0]
    folder.rename(tmp_path / "elsewhere")
    until(broker, lambda: captured(tmp_path) == list(range(300)))
    deadline = time.monotonic() + PATIENCE
    while min(await first_offsets(broker)) == 0:
        assert time.monotonic() < deadline


async def test_a_directory_that_cannot_be_written(broker: BrokerProcess, tmp_path: Path) -> None:
    """The broker goes on, and so does capture, once it can."""
    until(broker, lambda: "a stream is captured" in broker.log)
    (tmp_path / "capture").rename(tmp_path / "elsewhere")
    (tmp_path / "capture").write_text("in the way")
    ledger: dict[int, bool] = {}
    await publish(broker, range(200), ledger)
    until(broker, lambda: "a file cannot be captured; it is tried again" in broker.log)
    assert "Not a directory" in broker.log or "File exists" in broker.log
    assert await first_offsets(broker) == [0, 0]
    (tmp_path / "capture").unlink()
    (tmp_path / "elsewhere").rename(tmp_path / "capture")
    until(broker, lambda: captured(tmp_path) == list(range(200)))


@pytest.mark.parametrize("settings", [{"records": 1_000_000, "age": "1h"}])
async def test_the_end_of_the_broker_closes_files(broker: BrokerProcess, tmp_path: Path) -> None:
    ledger: dict[int, bool] = {}
    await publish(broker, range(100), ledger)
    assert captured(tmp_path) == []
    await asyncio.to_thread(broker.stop)
    assert captured(tmp_path) == list(range(100))
    assert len(names_in(LocalPlace(tmp_path / "capture" / "orders"))) == 2
