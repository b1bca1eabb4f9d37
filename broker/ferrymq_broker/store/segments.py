"""The files of the journal.

- `journal-N-B` is in use: it has the batches from N on, and a size of B bytes, used or not;
- `spare-N-K` is full of zeros or of old frames, and becomes the next `journal-N`; when it got its
  name, all batches up to N were applied;
- `new-K` is being filled with zeros.

A file has its full size, synced, before it is renamed to `journal-N-B`. If a file is shorter,
something else has truncated it, and the missing part may have had batches. The size is in the name
because the content of a damaged file cannot be trusted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ferrymq_broker.event_log import log
from ferrymq_broker.store.disk import File, Folder
from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.journal_frames import (
    BLOCK,
    HEADER_BYTES,
    MAGIC,
    FrameHeader,
    decode_header,
    is_intact,
)

JOURNAL_PREFIX: Final = "journal-"
SPARE_PREFIX: Final = "spare-"
NEW_PREFIX: Final = "new-"

# Bytes per read when the next frame is searched after an unreadable place.
_SEARCH_BYTES: Final = 1 << 20


class JournalSegment:
    """A file of the journal: frames up to `position`, of the batches from `first` to `last`."""

    __slots__ = ("name", "file", "capacity", "first", "last", "position")

    def __init__(self, name: str, file: File, capacity: int, first: int = 0) -> None:
        self.name: str = name
        self.file: File = file
        self.capacity: int = capacity
        self.first: int = first
        self.last: int = first - 1
        self.position: int = 0


class JournalFrame(NamedTuple):
    """A batch that was read, and its place."""

    segment: JournalSegment
    offset: int
    header: FrameHeader
    batch: bytes


def journal_name(first: int, capacity: int) -> str:
    """Return the name of the segment of this size whose first batch is `first`."""
    return f"{JOURNAL_PREFIX}{first:016}-{capacity}"


def parse_journal(name: str) -> tuple[int, int] | None:
    """Return the first batch and the size in a segment's name, None for another file."""
    first, _, capacity = name.removeprefix(JOURNAL_PREFIX).partition("-")
    if name.startswith(JOURNAL_PREFIX) and first.isdecimal() and capacity.isdecimal():
        return int(first), int(capacity)
    return None


def spare_name(applied: int, number: int) -> str:
    """Return the name of a spare that gets its name when all batches up to `applied` are
    applied."""
    return f"{SPARE_PREFIX}{applied:016}-{number}"


def parse_spare(name: str) -> tuple[int, int] | None:
    """Return the batch and the number in a spare's name, None for another file."""
    applied, _, number = name.removeprefix(SPARE_PREFIX).partition("-")
    if name.startswith(SPARE_PREFIX) and applied.isdecimal() and number.isdecimal():
        return int(applied), int(number)
    return None


def find_segments(folder: Folder) -> list[JournalSegment]:
    """Return the segments in use, open, in the order of their batches. The caller closes them.

    Raises `StoreDamaged` if a segment does not have its original size.
    """
    found: list[JournalSegment] = []
    try:
        for name in folder.names():
            parsed = parse_journal(name)
            if parsed is None:
                continue
            first, capacity = parsed
            file = folder.open(name)
            found.append(JournalSegment(name, file, capacity, first))
            size = file.size()
            if size != capacity:
                raise StoreDamaged(
                    f"{folder.describe(name)} was truncated: it has {size} bytes instead of "
                    f"{capacity}, and the missing part may have had batches. Restore the whole "
                    "directory of the store from a backup"
                    if size < capacity
                    else (
                        f"{folder.describe(name)} has {size} bytes instead of {capacity}. "
                        "Restore the whole directory of the store from a backup"
                    )
                )
    except BaseException:
        for segment in found:
            segment.file.close()
        raise
    found.sort(key=lambda segment: segment.first)
    return found


def read_frame(secret: bytes, segment: JournalSegment, offset: int) -> JournalFrame | None:
    """Return the frame at an offset, None if no valid frame is there."""
    header = decode_header(segment.file.read(offset, HEADER_BYTES))
    if header is None or header.segment != segment.first:
        return None
    if offset + HEADER_BYTES + header.length > segment.capacity:
        return None
    batch = segment.file.read(offset + HEADER_BYTES, header.length)
    if not is_intact(secret, header, batch):
        return None
    return JournalFrame(segment, offset, header, batch)


class JournalReader:
    """A reader of the batches in segments, in order; it also finds the end of the journal.

    `applied` is the last batch that is in the records: batches up to it may be missing. After
    reading, `last` is the last batch found.
    """

    def __init__(
        self, folder: Folder, secret: bytes, segments: list[JournalSegment], applied: int
    ) -> None:
        self.last: int = applied
        self._folder = folder
        self._secret = secret
        self._segments = segments
        self._applied = applied
        # The last batch read, 0 before the first one.
        self._read = 0
        # The segment and offset where no frame could be read.
        self._stopped: tuple[JournalSegment, int] | None = None

    def frames(self) -> Iterator[JournalFrame]:
        """Yield all readable batches from the oldest segment on, also those already applied.

        An unreadable batch without a readable one behind it was never acknowledged: it was being
        written when the process or the machine stopped. If a readable batch follows it, it was
        acknowledged, and the journal is damaged. Raises `StoreDamaged`.
        """
        for segment in self._segments:
            offset: int | None = 0
            while offset is not None:
                frame = read_frame(self._secret, segment, offset)
                if frame is None:
                    if self._stopped is None:
                        self._stopped = (segment, offset)
                    offset = self._search(segment, offset + BLOCK)
                    continue
                self._check(frame)
                yield frame
                offset += frame.header.size
                segment.position = offset
                segment.last = frame.header.number
                if offset >= segment.capacity:
                    offset = None
        if self._stopped is not None:
            self._report(*self._stopped)

    def _search(self, segment: JournalSegment, offset: int) -> int | None:
        """Return the next offset that looks like the beginning of a frame of this segment."""
        wanted = MAGIC + segment.first.to_bytes(8, "big")
        while offset < segment.capacity:
            data = segment.file.read(offset, _SEARCH_BYTES)
            if not data:
                return None
            at = data.find(wanted)
            while at >= 0:
                if at % BLOCK == 0:
                    return offset + at
                at = data.find(wanted, at + 1)
            offset += len(data) // BLOCK * BLOCK or BLOCK
        return None

    def _check(self, frame: JournalFrame) -> None:
        """Check that a batch is the next one."""
        number = frame.header.number
        expected = self._read + 1 if self._read else min(number, self._applied + 1)
        if number != expected and not expected < number <= self._applied + 1:
            raise StoreDamaged(self._describe_gap(frame, expected))
        self._read = number
        self.last = max(self.last, number)
        self._stopped = None

    def _describe_gap(self, frame: JournalFrame, expected: int) -> str:
        number = frame.header.number
        where = self._folder.describe(frame.segment.name)
        if number < expected:
            return (
                f"{where} is damaged: at byte {frame.offset} is batch {number}, which was read "
                "before"
            )
        if self._stopped is not None:
            segment, offset = self._stopped
            place = f"{self._folder.describe(segment.name)} is damaged: at byte {offset}"
            return (
                f"{place}, batch {expected} cannot be read, although batch {number} after it "
                f"can (at byte {frame.offset} of {frame.segment.name})"
            )
        return (
            f"{where}: batch {expected} is missing: at byte {frame.offset} is batch {number}. "
            "Restore the whole directory of the store from a backup"
        )

    def _report(self, segment: JournalSegment, offset: int) -> None:
        """Log that a batch was cut off, if its header can be read."""
        header = decode_header(segment.file.read(offset, HEADER_BYTES))
        if (
            header is not None
            and header.segment == segment.first
            and header.number == self.last + 1
        ):
            log.warning(
                "the last batch was not written completely; it was never acknowledged and is "
                "left out",
                segment=self._folder.describe(segment.name),
                offset=offset,
                batch=header.number,
            )
