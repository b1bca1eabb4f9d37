"""The checkpointer: it applies full segments while the broker runs, in slices in the event loop,
with commits in a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from ferrymq_broker.store.disk import is_full
from ferrymq_broker.store.disk_alarm import RECORDS, DiskAlarm
from ferrymq_broker.store.executor import Executor
from ferrymq_broker.store.journal import Journal
from ferrymq_broker.store.journal_replay import (
    Step,
    apply_now,
    fill_records,
    frames_in_steps,
    read_batches,
    written_frames,
)
from ferrymq_broker.store.net_effect import NetEffect
from ferrymq_broker.store.records import Records, RecordsGrow
from ferrymq_broker.store.segments import JournalSegment

# The seconds of a slice, by the number of waiting segments: the more wait, the faster they are
# applied.
_SLICE: Final = 0.001
# The most segments that are applied together while there is room: their batches, and the pages of
# LMDB that they change, are in memory meanwhile.
_TOGETHER: Final = 2
# Steps after which the mapping of the records is released: each may read 100 pages of 4 KiB.
_UNMAP_STEPS: Final = 160
# Seconds until the next attempt after the disk was full.
_RETRY: Final = 1.0


class Checkpointer:
    """The task that applies full segments to the records; `wake` starts it.

    `recycled` is called when a segment can be used again, `failed` when records can no longer be
    written. `unmap` releases the mapped pages of the records, which count as memory of the process;
    it is called again and again while records are written.
    """

    def __init__(
        self,
        journal: Journal,
        secret: bytes,
        records: Records,
        executor: Executor,
        alarm: DiskAlarm,
        recycled: Callable[[], None],
        failed: Callable[[Exception], None],
        unmap: Callable[[], object] | None = None,
    ) -> None:
        self._journal = journal
        self._secret = secret
        self._records = records
        self._executor = executor
        self._alarm = alarm
        self._recycled = recycled
        self._failed = failed
        self._unmap = unmap
        self._mapped_steps = 0
        # The segments being applied, or None.
        self._segments: list[JournalSegment] | None = None
        self._applied = 0
        self._effect = NetEffect()
        self._steps: Iterator[Step] = iter(())
        self._stopped = False
        self._retrying = False
        self._when_idle: list[Callable[[], None]] = []
        # A backup and a snapshot may pause it at the same time.
        self._pauses = 0

    def wake(self) -> None:
        """Start applying if there are full segments and no other work is under way."""
        if self._segments is None and not self._pauses and not self._stopped:
            if self._journal.full:
                self._begin(self._journal.full[:_TOGETHER])
                self._executor.soon(self._slice)

    # -- slices ------------------------------------------------------------------------------

    def _begin(self, segments: list[JournalSegment]) -> None:
        self._segments = segments
        self._applied = segments[-1].last
        self._effect = NetEffect()
        self._steps = self._work(segments)

    def _work(self, segments: list[JournalSegment]) -> Iterator[Step]:
        frames = frames_in_steps(self._secret, segments, self._records.applied)
        yield from read_batches(self._effect, frames)
        yield from fill_records(self._effect, self._records)

    def _slice(self) -> None:
        if self._stopped or self._segments is None:
            return
        executor = self._executor
        end = executor.time() + _SLICE * max(1, len(self._journal.full))
        try:
            for step in self._steps:
                self._count_step()
                if step is not None:
                    executor.commit(step, self._stepped)
                    return
                if executor.time() >= end:
                    executor.soon(self._slice)
                    return
        except Exception as error:
            self._could_not(error)
            return
        executor.commit(partial(self._records.commit, self._applied), self._committed)

    def _count_step(self) -> None:
        self._mapped_steps += 1
        if self._mapped_steps >= _UNMAP_STEPS:
            self._mapped_steps = 0
            if self._unmap is not None:
                self._unmap()

    def _stepped(self, error: Exception | None) -> None:
        if error is not None:
            self._could_not(error)
        elif not self._stopped:
            self._slice()

    def _committed(self, error: Exception | None) -> None:
        if self._stopped or self._segments is None:
            return
        if isinstance(error, RecordsGrow):
            self._steps = fill_records(self._effect, self._records)
            self._executor.soon(self._slice)
        elif error is not None:
            self._could_not(error)
        else:
            self._alarm.set(RECORDS, False)
            self._journal.applied = self._records.applied
            self._effect = NetEffect()
            # Here, and not in the thread that has committed: what this thread was reading when the
            # records were committed is read to its end.
            self._executor.commit(self._records.give_back, self._gave_back)

    def _gave_back(self, error: Exception | None) -> None:
        if self._stopped:
            return
        if error is not None:
            self._segments = None
            self._failed(error)
        else:
            # The current segment may have become full meanwhile; then its last batches are not
            # applied yet.
            used = [one for one in self._journal.full if one.last <= self._applied]
            if used:
                self._recycle(used, [])
            else:
                self._end()

    def _recycle(self, used: list[JournalSegment], spares: list[JournalSegment]) -> None:
        del self._journal.full[: len(used)]
        self._executor.commit(
            partial(self._journal.recycle, used, spares),
            partial(self._was_recycled, used, spares),
        )

    def _was_recycled(
        self, used: list[JournalSegment], spares: list[JournalSegment], error: Exception | None
    ) -> None:
        self._journal.spares += spares
        spares.clear()
        if isinstance(error, OSError) and is_full(error) and not self._stopped:
            self._executor.later(_RETRY, partial(self._recycle, used, spares))
            return
        if error is not None:
            self._segments = None
            self._failed(error)
            return
        self._end()

    def _end(self) -> None:
        self._segments = None
        self._become_idle()
        if not self._stopped:
            self._recycled()
            self.wake()

    def _become_idle(self) -> None:
        waiting = self._when_idle
        self._when_idle = []
        for call in waiting:
            call()

    def _could_not(self, error: Exception) -> None:
        self._records.abort()
        if not (isinstance(error, OSError) and is_full(error)):
            self._segments = None
            self._failed(error)
            return
        self._alarm.set(RECORDS, True)
        self._retrying = True
        self._executor.later(_RETRY, self._retry)
        self._become_idle()

    def _retry(self) -> None:
        """Try again, with all batches that were written since: settled messages need no room."""
        if self._stopped:
            return
        if self._pauses:
            self._executor.later(_RETRY, self._retry)
            return
        self._retrying = False
        self._begin(self._all_segments())
        self._executor.soon(self._slice)

    def apply_all(self) -> None:
        """Apply the segment that is being written, too, if no other work is under way."""
        if self._segments is None and not self._pauses and not self._stopped:
            segments = self._all_segments()
            if segments and segments[-1].last > self._records.applied:
                self._begin(segments)
                self._executor.soon(self._slice)

    def _all_segments(self) -> list[JournalSegment]:
        segments = list(self._journal.full)
        if self._journal.current is not None:
            segments.append(self._journal.current)
        return segments

    # -- pausing and ending ------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        """Whether the checkpointer waits for `resume`."""
        return self._pauses > 0

    def pause(self, call: Callable[[], None]) -> None:
        """Call `call` as soon as nothing is being applied, and start nothing until each `pause` has
        had its `resume`."""
        self._pauses += 1
        if self._segments is None or self._retrying:
            call()
        else:
            self._when_idle.append(call)

    def resume(self) -> None:
        """End one pause, and continue if it was the last one."""
        self._pauses -= 1
        self.wake()

    def stop(self) -> None:
        """Start no more work. A commit may still be under way."""
        self._stopped = True

    def finish(self) -> None:
        """Apply the whole journal now; after `Executor.drain`. Raises `OSError`, `StoreDamaged`."""
        self.stop()
        self._records.abort()
        segments = self._all_segments()
        if segments and segments[-1].last > self._records.applied:
            effect = NetEffect()
            frames = written_frames(self._secret, segments, self._records.applied)
            for _ in read_batches(effect, frames):
                pass
            apply_now(effect, self._records, segments[-1].last)
