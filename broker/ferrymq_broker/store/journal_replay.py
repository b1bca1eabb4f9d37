"""Transfer of batches from the journal to the records, in small steps.

Each step takes a fraction of a millisecond. A step that reads or writes a large value takes longer:
it is returned as a call that a thread makes before the next step.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Final, TypeAlias, TypeVar

from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.journal_frames import HEADER_BYTES, decode_header
from ferrymq_broker.store.net_effect import NetEffect
from ferrymq_broker.store.records import Records, RecordsGrow
from ferrymq_broker.store.segments import JournalFrame, JournalSegment, read_frame

# Changes between two checks of the clock: a fraction of a millisecond.
_READ_AT_ONCE: Final = 1000
_WRITE_AT_ONCE: Final = 100
# A batch of at least this many bytes is read in a thread, and its records are written in one.
_LARGE: Final = 1 << 20

T = TypeVar("T")
# A call that a thread must make before the next step, or None.
Step: TypeAlias = Callable[[], None] | None


def written_frames(
    secret: bytes, segments: Iterable[JournalSegment], applied: int
) -> Iterator[JournalFrame]:
    """Yield the written frames of segments that are not applied yet. Raises `StoreDamaged`."""
    for segment in segments:
        offset = 0
        while offset < segment.position:
            frame = read_frame(secret, segment, offset)
            if frame is None:
                raise StoreDamaged(
                    f"{segment.name} is damaged: at byte {offset} there is no valid batch"
                )
            offset += frame.header.size
            if frame.header.number > applied:
                yield frame


def frames_in_steps(
    secret: bytes, segments: Iterable[JournalSegment], applied: int
) -> Iterator[JournalFrame | Callable[[], None]]:
    """Yield frames as `written_frames` does; before a large one, yield a call that reads it."""
    for segment in segments:
        offset = 0
        while offset < segment.position:
            header = decode_header(segment.file.read(offset, HEADER_BYTES))
            if header is None or header.length < _LARGE:
                frame = read_frame(secret, segment, offset)
            else:
                frame = yield from _apart(partial(read_frame, secret, segment, offset))
            if frame is None:
                raise StoreDamaged(
                    f"{segment.name} is damaged: at byte {offset} there is no valid batch"
                )
            offset += frame.header.size
            if frame.header.number > applied:
                yield frame


def read_batches(
    effect: NetEffect, frames: Iterable[JournalFrame | Callable[[], None]]
) -> Iterator[Step]:
    """Read all batches into `effect`, in steps. Raises `StoreDamaged`."""
    for frame in frames:
        if not isinstance(frame, JournalFrame):
            yield frame
            continue
        before = effect.changes
        effect.begin(frame.batch)
        try:
            while not effect.read(_READ_AT_ONCE):
                yield None
        except StoreDamaged as error:
            raise StoreDamaged(_place(frame, str(error))) from error
        if effect.changes - before != frame.header.changes:
            raise StoreDamaged(
                _place(frame, "the batch does not have the number of changes in its header")
            )
        yield None


def fill_records(effect: NetEffect, records: Records) -> Iterator[Step]:
    """Make the changes in a transaction, in steps; the caller commits it. Raises `OSError`."""
    large = effect.longest >= _LARGE
    while True:
        try:
            records.begin()
            effect.rewind()
            if large:
                # Which values are large is known only when they are written.
                while not (yield from _apart(partial(effect.write, records, _WRITE_AT_ONCE))):
                    pass
                return
            while not effect.write(records, _WRITE_AT_ONCE):
                yield None
        except RecordsGrow:
            continue
        return


def apply_now(effect: NetEffect, records: Records, applied: int) -> None:
    """Make the changes and commit them without pausing. Raises `OSError`."""
    while True:
        try:
            for step in fill_records(effect, records):
                if step is not None:
                    step()
            records.commit(applied)
            records.give_back()
        except RecordsGrow:
            continue
        return


def _apart(call: Callable[[], T]) -> Generator[Callable[[], None], None, T]:
    """Yield a call for a thread; return or raise its result."""
    ends: list[T | Exception] = []

    def make() -> None:
        try:
            ends.append(call())
        except Exception as error:
            ends.append(error)

    yield make
    [end] = ends
    if isinstance(end, Exception):
        raise end
    return end


def _place(frame: JournalFrame, what: str) -> str:
    offset = frame.offset + HEADER_BYTES
    return f"{frame.segment.name}: batch {frame.header.number} at byte {offset}: {what}"
