"""Runs of messages that were on disk only when the broker was stopped, kept for the next start.

A start reads the entries of all queues. For messages that stay on disk it would learn nothing that
the stopped broker did not know from its runs (`nodes/queues/disk_runs.py`). So the runs are stored
as blocks of bytes (`store/paged_out_file.py`), and the start skips their records.

| block | after its first byte |
|---|---|
| `QUEUE` | id of the queue i64; the ranges of sequences that are in runs: first i64, last i64 |
| `RUN` | id of the queue, level, `DiskRun.base`: i64 each; number of kinds u8; for each kind |
| | whether its messages are the broker's own u8; the rows |
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from typing import Final, final

from librt.strings import BytesWriter, read_i64_be, write_i64_be
from mypy_extensions import i64, u8

from ferrymq_broker.broker import Broker
from ferrymq_broker.nodes.entry import RUN
from ferrymq_broker.nodes.paging.pager import pager_of
from ferrymq_broker.nodes.queues.disk_runs import ROW, DiskRun, Kind
from ferrymq_broker.nodes.queues.priority_levels import PriorityLevel
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.recovery.messages import ELSEWHERE

_QUEUE: Final = b"q"
_RUN: Final = b"r"
_HEAD: Final = 9
_RUN_HEAD: Final = 26
_RANGE: Final = 16
_BEHIND: Final = (1 << 63) - 1


def describe_paged_out(broker: Broker) -> list[bytes]:
    """Return the runs of all queues as blocks, valid once everything is stored."""
    sweep = broker.memory.sweep
    blocks: list[bytes] = []
    if sweep is not None:
        for queue in sweep.queues():
            if queue.store_id != 0 and queue.restorer().is_indifferent():
                blocks += _describe(queue)
    return blocks


def _describe(queue: Queue) -> list[bytes]:
    ranges = BytesWriter()
    ranges.write(_QUEUE)
    write_i64_be(ranges, queue.store_id)
    first: i64 = -1
    last: i64 = -1
    for begin, end in merge(
        *[_sequences(priority_level) for priority_level in queue.entries.priority_levels]
    ):
        if begin != last + 1 or first < 0:
            if first >= 0:
                write_i64_be(ranges, first)
                write_i64_be(ranges, last)
            first = begin
        last = end
    if first < 0:
        return []
    write_i64_be(ranges, first)
    write_i64_be(ranges, last)
    blocks = [ranges.getvalue()]
    for priority_level in queue.entries.priority_levels:
        for run in _runs(priority_level):
            blocks.append(_encode_run(queue.store_id, priority_level.level, run))
    return blocks


def _runs(priority_level: PriorityLevel) -> Iterator[DiskRun]:
    """Yield the runs of a priority level that have only plain, stored messages."""
    entry = priority_level.first
    while entry is not None:
        if entry.state == RUN and priority_level.runs is not None:
            run = priority_level.runs.of(entry)
            if not run.deadlines and not run.others and all(kind.stored for kind in run.kinds):
                yield run
        entry = entry.next


def _sequences(priority_level: PriorityLevel) -> Iterator[tuple[int, int]]:
    """Yield the sequences of these runs in order, as first and last of consecutive ones."""
    for run in _runs(priority_level):
        first = run.sequence(run.begin)
        last = run.sequence(run.end - 1)
        if last - first + 1 == run.count():
            yield int(first), int(last)
            continue
        last = first
        index = run.begin + 1
        while index < run.end:
            sequence = run.sequence(index)
            if sequence != last + 1:
                yield int(first), int(last)
                first = sequence
            last = sequence
            index += 1
        yield int(first), int(last)


def _encode_run(id: i64, level: i64, run: DiskRun) -> bytes:
    w = BytesWriter()
    w.write(_RUN)
    write_i64_be(w, id)
    write_i64_be(w, level)
    write_i64_be(w, run.base)
    w.append(u8(len(run.kinds)))
    for kind in run.kinds:
        w.append(u8(1 if kind.message.origin == 0 else 0))
    w.write(run.rows[ROW * run.begin : ROW * run.end])
    return w.getvalue()


@final
class PagedOut:
    """The runs of one queue, which are restored between its entries."""

    __slots__ = ("queue", "_ranges", "_at", "_runs")

    def __init__(self, queue: Queue, ranges: bytes) -> None:
        self.queue: Queue = queue
        self._ranges = ranges
        self._at: i64 = _HEAD
        # By their first sequences in descending order: (sequence, level, run).
        self._runs: list[tuple[int, int, DiskRun]] = []

    def add(self, block: bytes) -> None:
        """Add the run of a block."""
        pager = pager_of(self.queue.agenda)
        assert pager is not None
        run = DiskRun(read_i64_be(block, 17))
        count: i64 = block[25]
        index: i64 = _RUN_HEAD
        rows = index + count
        while index < rows:
            message = pager.blank_of(0 if block[index] else ELSEWHERE)
            run.kinds.append(Kind(message, True, 1))
            index += 1
        run.rows = block[rows:]
        run.end = len(run.rows) // ROW
        self._runs.append((int(run.sequence(0)), int(read_i64_be(block, 9)), run))

    def sort(self) -> None:
        """Sort the runs, once all are added."""
        self._runs.sort(key=_first, reverse=True)

    def passed(self, sequence: i64) -> i64:
        """Return the last of the consecutive sequences, from this one on, that are in runs; -1 if
        this one is in none. Sequences must be asked for in order."""
        ranges = self._ranges
        while self._at < len(ranges):
            if sequence < read_i64_be(ranges, self._at):
                return -1
            last = read_i64_be(ranges, self._at + 8)
            if sequence <= last:
                return last
            self._at += _RANGE
        return -1

    def restore(self, before: i64 = _BEHIND) -> i64:
        """Append the runs that begin before a sequence to their priority levels, and return how
        many messages they have."""
        restore = self.queue.restorer()
        count: i64 = 0
        while self._runs and self._runs[-1][0] < before:
            _, level, run = self._runs.pop()
            restore.run(level, run)
            count += run.count()
        return count


def find_paged_out(blocks: list[bytes], queues: dict[int, Queue]) -> dict[int, PagedOut]:
    """Return the runs of queues by their ids, and empty the list of blocks. Queues that have to see
    their messages are left out."""
    found: dict[int, PagedOut] = {}
    blocks.reverse()
    while blocks:
        # There may be millions of rows, so each block is freed when it is taken over.
        block = blocks.pop()
        id = int(read_i64_be(block, 1))
        if block[:1] == _QUEUE:
            queue = queues.get(id)
            if (
                queue is not None
                and queue.agenda.pager is not None
                and queue.restorer().is_indifferent()
            ):
                found[id] = PagedOut(queue, block)
        elif id in found:
            found[id].add(block)
    for one in found.values():
        one.sort()
    return found


def _first(run: tuple[int, int, DiskRun]) -> int:
    return run[0]
