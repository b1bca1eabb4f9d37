"""Recovery at the start: apply the whole journal to the records and empty it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ferrymq_broker.store.disk import is_full
from ferrymq_broker.store.errors import StoreError
from ferrymq_broker.store.head_file import require_batches
from ferrymq_broker.store.journal import Journal
from ferrymq_broker.store.journal_replay import apply_now, read_batches
from ferrymq_broker.store.net_effect import NetEffect
from ferrymq_broker.store.records import Records
from ferrymq_broker.store.segments import JournalFrame, JournalReader, JournalSegment, find_segments

# A callback that gets the bytes done and the total.
Progress = Callable[[int, int], None]

# The bytes and changes of batches applied in one transaction. A running broker needs more memory
# than that.
_AT_ONCE: Final = 4 << 20
_CHANGES_AT_ONCE: Final = 25_000


def recover(
    journal: Journal, secret: bytes, records: Records, progress: Progress | None = None
) -> int:
    """Apply the rest of the journal and return the number of the last batch.

    Recovery can be stopped at any moment and started again. Raises `StoreDamaged`, `OSError`.
    """
    journal.applied = records.applied
    segments = find_segments(journal.folder)
    try:
        journal.find_spares()
        reader = JournalReader(journal.folder, secret, segments, records.applied)
        total = sum(segment.capacity for segment in segments)
        done = 0
        batches: list[JournalFrame] = []
        size = changes = 0
        for frame in reader.frames():
            done += frame.header.size
            if frame.header.number <= records.applied:
                continue
            batches.append(frame)
            size += frame.header.length
            changes += frame.header.changes
            if size >= _AT_ONCE or changes >= _CHANGES_AT_ONCE:
                _apply(batches, records, journal)
                batches = []
                size = changes = 0
                if progress is not None:
                    progress(done, total)
        require_batches(journal.folder, journal.head.value, reader.last)
        if batches:
            _apply(batches, records, journal)
        if progress is not None:
            progress(total, total)
    except BaseException:
        for segment in segments:
            segment.file.close()
        raise
    journal.clear(segments)
    return reader.last


def _apply(frames: list[JournalFrame], records: Records, journal: Journal) -> None:
    effect = NetEffect()
    for _ in read_batches(effect, frames):
        pass
    try:
        apply_now(effect, records, frames[-1].header.number)
    except OSError as error:
        if not is_full(error):
            raise
        # Spare segments can be created again; acknowledged data cannot.
        _remove(journal, journal.spares)
        try:
            apply_now(effect, records, frames[-1].header.number)
        except OSError as again:
            if not is_full(again):
                raise
            raise StoreError(
                f"{journal.folder.describe()}: the disk has no room to apply the journal: free "
                f"at least {sum(len(frame.batch) for frame in frames)} bytes"
            ) from again
    journal.applied = records.applied


def _remove(journal: Journal, spares: list[JournalSegment]) -> None:
    while spares:
        spare = spares.pop()
        spare.file.close()
        journal.folder.remove(spare.name)
    journal.folder.sync()
