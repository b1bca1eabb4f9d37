"""The writer of the journal: it finds the place of the next batch and recycles full segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ferrymq_broker.store.disk import Folder
from ferrymq_broker.store.errors import StoreDamaged, StoreError
from ferrymq_broker.store.head_file import HeadContent, HeadFile
from ferrymq_broker.store.journal_frames import MAX_BATCH_BYTES, encode, frame_bytes
from ferrymq_broker.store.segments import (
    NEW_PREFIX,
    JournalSegment,
    journal_name,
    parse_journal,
    parse_spare,
    spare_name,
)

DEFAULT_SEGMENT_BYTES: Final = 16 << 20
MIN_SEGMENT_BYTES: Final = 64 << 10

# How many spare segments are kept.
_KEPT_SPARES: Final = 2


class Placement:
    """A batch and its place. Call `write` in a thread; call it again if the disk was full."""

    __slots__ = ("journal", "segment", "number", "count", "batch", "size", "is_first")

    def __init__(
        self,
        journal: Journal,
        segment: JournalSegment | None,
        number: int,
        count: int,
        batch: Sequence[bytes],
        is_first: bool,
    ) -> None:
        self.journal: Journal = journal
        # If None, `write` creates a segment for this batch alone.
        self.segment = segment
        self.number: int = number
        # The number of changes in the batch, and its parts.
        self.count: int = count
        self.batch: Sequence[bytes] = batch
        # Bytes of the frame.
        self.size: int = frame_bytes(sum(map(len, batch)))
        # Whether the batch is the first one in its segment.
        self.is_first: bool = is_first

    def write(self) -> None:
        """Write the frame to disk, or to the system's cache if frames are not synced. Raises
        `OSError`."""
        segment = self.segment
        if segment is None:
            segment = self._make_segment()
        elif self.is_first:
            name = journal_name(self.number, segment.capacity)
            if segment.name != name:
                self.journal.folder.rename(segment.name, name)
                segment.name = name
            self.journal.folder.sync()
        first = segment.first
        if self.is_first:
            # At this point the segment has its name on disk, and no frame yet.
            self.journal.head.write(HeadContent(self.number - 1, segment.name))
            first = self.number
        parts = encode(self.journal.secret, first, self.number, self.count, self.batch)
        segment.file.write(segment.position, parts, self.journal.syncs)

    def _make_segment(self) -> JournalSegment:
        """Make a segment for a batch that is too long for the usual size."""
        folder = self.journal.folder
        # The file gets its size before its name. Spares being made have shorter names.
        new = f"{NEW_PREFIX}{self.number:016}"
        name = journal_name(self.number, self.size)
        file = folder.create(new)
        try:
            file.fill(self.size)
            folder.rename(new, name)
            new = name
            folder.sync()
        except OSError:
            # The unfinished file would take the room that the next attempt needs.
            file.close()
            folder.remove(new)
            raise
        self.segment = JournalSegment(name, file, self.size, self.number)
        return self.segment


class Journal:
    """The segments of a store that is running.

    `current` is being written, `full` segments wait to be applied, the oldest first, and `spares`
    wait to be used. `applied` is the last batch in the records. `head` says on disk which segment
    was begun last; the journal closes it. `syncs` says whether frames are synced.
    """

    def __init__(self, folder: Folder, secret: bytes, segment_bytes: int, head: HeadFile) -> None:
        self.folder = folder
        self.head = head
        self.segment_bytes = segment_bytes
        self.syncs: bool = True
        self.applied = 0
        self.current: JournalSegment | None = None
        self.full: list[JournalSegment] = []
        self.spares: list[JournalSegment] = []
        self.secret = secret
        self._last_spare = 0

    @property
    def size(self) -> int:
        """Bytes of all files of the journal."""
        segments = [*self.full, *self.spares]
        if self.current is not None:
            segments.append(self.current)
        return sum(segment.capacity for segment in segments)

    @property
    def last(self) -> int:
        """The number of the last batch in the segments or in the records."""
        if self.current is not None:
            return self.current.last
        return self.full[-1].last if self.full else self.applied

    # -- writing -----------------------------------------------------------------------------

    def place(self, number: int, count: int, batch: Sequence[bytes]) -> Placement | None:
        """Return the place of the next batch, given in parts; None if a spare is needed and there
        is none. Call `placed` after the write."""
        length = sum(map(len, batch))
        if length > MAX_BATCH_BYTES:
            raise StoreError(
                f"a batch of {length} bytes is too long for the journal; at most "
                f"{MAX_BATCH_BYTES} are possible"
            )
        size = frame_bytes(length)
        segment = self.current
        if segment is not None and segment.position + size <= segment.capacity:
            return Placement(self, segment, number, count, batch, False)
        if size > self.segment_bytes:
            return Placement(self, None, number, count, batch, True)
        if not self.spares:
            return None
        return Placement(self, self.spares[0], number, count, batch, True)

    def placed(self, placement: Placement) -> None:
        """Record that the frame was written."""
        segment = placement.segment
        assert segment is not None
        if placement.is_first:
            if self.current is not None:
                self.full.append(self.current)
            if self.spares and self.spares[0] is segment:
                del self.spares[0]
            segment.first = placement.number
            self.current = segment
        segment.position += placement.size
        segment.last = placement.number

    # -- spares ------------------------------------------------------------------------------

    def prepare(self) -> JournalSegment:
        """Make and return a spare, which the caller adds to `spares`; in a thread. Raises
        `OSError`."""
        self._last_spare += 1
        name = f"{NEW_PREFIX}{self._last_spare}"
        file = self.folder.create(name)
        try:
            file.fill(self.segment_bytes)
            spare = spare_name(self.applied, self._last_spare)
            self.folder.rename(name, spare)
            name = spare
            self.folder.sync()
        except OSError:
            file.close()
            self.folder.remove(name)
            raise
        return JournalSegment(spare, file, self.segment_bytes)

    def find_spares(self) -> None:
        """Take the existing spares, and remove files that were being made.

        Raises `StoreDamaged` if the name of a spare says that more batches were applied than the
        records have.
        """
        for name in self.folder.names():
            if name.startswith(NEW_PREFIX) and name.removeprefix(NEW_PREFIX).isdecimal():
                self.folder.remove(name)
            spare = parse_spare(name)
            if spare is None:
                continue
            applied, number = spare
            if applied > self.applied:
                raise StoreDamaged(
                    f"{self.folder.describe('data.mdb')} is too old: the records end with "
                    f"batch {self.applied}, but the name of {name} says that they had batch "
                    f"{applied}. Restore the whole directory of the store from a backup"
                )
            self._last_spare = max(self._last_spare, number)
            file = self.folder.open(name)
            if file.size() == self.segment_bytes and len(self.spares) < _KEPT_SPARES:
                self.spares.append(JournalSegment(name, file, self.segment_bytes))
            else:
                file.close()
                self.folder.remove(name)

    def recycle(self, segments: list[JournalSegment], spares: list[JournalSegment]) -> None:
        """Move applied segments to `spares`, which the caller adds to the journal's, and remove
        those not needed; in a thread. Raises `OSError`, and can then be called again.
        """
        while segments:
            segment = segments[0]
            wanted = _KEPT_SPARES - len(self.spares) - len(spares)
            if segment.capacity == self.segment_bytes and wanted > 0:
                self._last_spare += 1
                name = spare_name(self.applied, self._last_spare)
                self.folder.rename(segment.name, name)
                spares.append(JournalSegment(name, segment.file, segment.capacity))
            else:
                self.folder.remove(segment.name)
                segment.file.close()
            del segments[0]
        self.folder.sync()

    def clear(self, segments: list[JournalSegment]) -> None:
        """Move all segments, which must be applied, to the spares, while nothing is written. Raises
        `OSError`."""
        # Update the head first: from then on the segments may be missing.
        self.head.write(HeadContent(self.applied, ""))
        self.recycle(segments, self.spares)

    def close(self) -> None:
        """Close all files."""
        self.head.close()
        for segment in [*self.full, *self.spares]:
            segment.file.close()
        if self.current is not None:
            self.current.file.close()
        self.full = []
        self.spares = []
        self.current = None


def discard_journal(folder: Folder, applied: int) -> HeadFile:
    """Remove all segments, whatever their state, and the spares that newer records left. Return a
    new head. `applied` is the last batch in the records. Raises `OSError`."""
    for name in folder.names():
        spare = parse_spare(name)
        if parse_journal(name) is not None or (spare is not None and spare[0] > applied):
            folder.remove(name)
    return HeadFile.create(folder, HeadContent(applied, ""))
