"""A store with its threads, in an event loop, on a disk."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.durable_store import DurableStore, StoreOptions
from ferrymq_broker.store.executor import LoopExecutor
from tests.broker.store.kit import SMALL, contents_of


class Running:
    """A store that runs in the loop of the test."""

    def __init__(self, path: Path, segment_bytes: int = SMALL) -> None:
        self.changes = Changes()
        self.store = DurableStore.open(path, self.changes, StoreOptions(segment_bytes))
        self.heard = asyncio.Event()
        self.failures: list[str] = []
        executor = LoopExecutor(asyncio.get_running_loop())
        # How often the mapped pages of the records were to be released.
        self.released = 0
        self.store.start(
            executor,
            self._on_stable,
            self.failures.append,
            lambda on: None,
            unmap=self._release,
        )

    def _release(self) -> None:
        self.released += 1

    def _on_stable(self) -> None:
        self.changes.settle()
        self.heard.set()

    async def stable(self, number: int) -> None:
        """Wait for a batch."""
        while self.changes.stable < number:
            self.heard.clear()
            await asyncio.wait_for(self.heard.wait(), 20)

    async def applied(self, number: int) -> None:
        for _ in range(20_000):
            if self.store.applied >= number:
                return
            await asyncio.sleep(0.001)
        pytest.fail(f"batch {number} is not applied")


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    opened = Running(tmp_path)
    yield opened
    opened.store.close()
    assert not opened.failures


async def test_everything_in_its_time(running: Running, tmp_path: Path) -> None:
    changes, store = running.changes, running.store
    for number in range(300):
        changes.put(5, 1, number, bytes(2000))
        if number >= 10:
            changes.drop(5, 1, number - 10)
        store.push()
        await running.stable(changes.number - 1)
    await running.applied(100)
    assert store.get(5, 1, 0) is None
    info = store.info()
    assert info["last"] == 300
    assert info["applied"] >= 100
    assert info["format"] == 2
    assert 0 < info["used-bytes"] < 20 * SMALL
    assert info["records-bytes"] >= info["free-bytes"]
    store.close()
    # Twice is as good as once.
    store.close()
    again = DurableStore.open(tmp_path, Changes(), StoreOptions(SMALL))
    assert [key[2] for key in contents_of(again)] == list(range(290, 300))
    again.close()


async def test_values_are_read_while_others_are_committed(running: Running) -> None:
    changes, store = running.changes, running.store
    for number in range(400):
        changes.put(5, 1, number, b"%d " % number * 700)
        store.push()
        await running.stable(number + 1)
        # All that were applied can be read, whatever the committing thread is at.
        for one in range(max(0, store.applied - 3), store.applied):
            assert store.get(5, 1, one) == b"%d " % one * 700
    assert store.applied > 300


async def test_the_loop_goes_on_meanwhile(tmp_path: Path) -> None:
    running = Running(tmp_path, 8 << 20)
    longest = 0.0
    for batch in range(60):
        for number in range(400):
            running.changes.put(5, 1, batch * 400 + number, bytes(900))
        running.store.push()
        while running.changes.stable < running.changes.number - 1:
            before = time.perf_counter()
            await asyncio.sleep(0)
            longest = max(longest, time.perf_counter() - before)
    await running.applied(30)
    # Slices of a millisecond, on a machine that has other things to do as well.
    assert longest < 0.25
    running.store.close()


async def test_the_pages_of_many_records_are_not_mapped_together(tmp_path: Path) -> None:
    """A page has two of these records: the pages of 40 000 would be 80 MB of memory."""
    running = Running(tmp_path, 8 << 20)
    for batch in range(100):
        for number in range(400):
            running.changes.put(5, 1, batch * 400 + number, bytes(1500))
        running.store.push()
        await running.stable(running.changes.number - 1)
    await running.applied(80)
    assert running.released >= 2
    running.store.close()


async def test_segments_that_wait_are_applied_two_at_a_time(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, store = running.changes, running.store
    commits = [0]
    commit = store.records.commit

    def note(applied: int) -> None:
        commits.append(applied)
        commit(applied)

    monkeypatch.setattr(store.records, "commit", note)
    paused = asyncio.Event()
    store.pause(paused.set)
    await paused.wait()
    # Some twelve batches fill a segment.
    for number in range(100):
        changes.put(5, 1, number, bytes(5000))
        store.push()
        await running.stable(number + 1)
    store.resume()
    await running.applied(80)
    steps = [last - first for first, last in itertools.pairwise(commits)]
    assert len(steps) >= 4 and max(steps) <= 26


async def test_close_writes_what_is_there(tmp_path: Path) -> None:
    running = Running(tmp_path)
    for number in range(50):
        running.changes.put(5, 1, number, bytes(5000))
        running.store.push()
    # Most of it has not even been given to a thread.
    running.store.close()
    assert running.changes.stable == running.changes.number - 1
    again = DurableStore.open(tmp_path, Changes(), StoreOptions(SMALL))
    assert len(contents_of(again)) == 50
    again.close()


async def test_calls_are_made_in_order_and_errors_are_told() -> None:
    executor = LoopExecutor(asyncio.get_running_loop())
    made: list[object] = []
    threads: set[int] = set()

    def call(number: int) -> None:
        threads.add(threading.get_ident())
        made.append(number)
        if number % 3 == 0:
            raise OSError(number, "told")

    def done(error: Exception | None) -> None:
        assert threading.get_ident() == threading.main_thread().ident
        made.append(error.errno if isinstance(error, OSError) else None)

    for number in range(1, 7):
        executor.write(lambda number=number: call(number), done)
    executor.drain()
    assert [one for one in made if isinstance(one, int)].count(3) == 2
    assert made.count(None) == 4
    assert len(made) == 12
    assert threading.get_ident() not in threads
    executor.close()


async def test_what_the_loop_is_told_after_its_end_is_kept_for_drain() -> None:
    loop = asyncio.new_event_loop()
    executor = LoopExecutor(loop)
    loop.close()
    ended: list[Exception | None] = []
    executor.commit(lambda: None, ended.append)
    executor.drain()
    assert ended == [None]
    executor.close()
