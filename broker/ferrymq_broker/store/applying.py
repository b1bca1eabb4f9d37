"""From the journal to the records, a bit at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.frames import HEADER_BYTES
from ferrymq_broker.store.records import Records, RecordsGrow
from ferrymq_broker.store.replay import NetEffect
from ferrymq_broker.store.segments import Frame, Segment, read_frame

# Changes between two looks at the clock: a fraction of a millisecond.
_READ_AT_ONCE: Final = 1000
_WRITE_AT_ONCE: Final = 100


def written_frames(secret: bytes, segments: Iterable[Segment], applied: int) -> Iterator[Frame]:
    """The frames of segments up to what was written, without what was applied already. Raises
    `StoreDamaged`."""
    for segment in segments:
        offset = 0
        while offset < segment.position:
            frame = read_frame(secret, segment, offset)
            if frame is None:
                raise StoreDamaged(
                    f"{segment.name}: at byte {offset} is not the batch that was written there"
                )
            offset += frame.header.size
            if frame.header.number > applied:
                yield frame


def read_batches(effect: NetEffect, frames: Iterable[Frame]) -> Iterator[None]:
    """Let `effect` read all batches; yields now and then. Raises `StoreDamaged`."""
    for frame in frames:
        before = effect.changes
        effect.begin(frame.batch)
        try:
            while not effect.read(_READ_AT_ONCE):
                yield
        except StoreDamaged as error:
            raise StoreDamaged(_place(frame, str(error))) from error
        if effect.changes - before != frame.header.changes:
            raise StoreDamaged(_place(frame, "the batch has not as many changes as it says"))
        yield


def fill_records(effect: NetEffect, records: Records) -> Iterator[None]:
    """Make the changes in a transaction that is still to be committed; yields now and then. Raises
    `OSError`."""
    while True:
        try:
            records.begin()
            effect.rewind()
            while not effect.write(records, _WRITE_AT_ONCE):
                yield
        except RecordsGrow:
            continue
        return


def apply_now(effect: NetEffect, records: Records, applied: int) -> None:
    """Make the changes and commit them, however long it takes. Raises `OSError`."""
    while True:
        try:
            for _ in fill_records(effect, records):
                pass
            records.commit(applied)
        except RecordsGrow:
            continue
        return


def _place(frame: Frame, what: str) -> str:
    offset = frame.offset + HEADER_BYTES
    return f"{frame.segment.name}: batch {frame.header.number} at byte {offset}: {what}"
