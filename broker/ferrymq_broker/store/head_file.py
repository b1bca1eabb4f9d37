"""The file `head`: the last segment and batches that a store must have.

The batches in the journal are numbered, so a missing segment before others is detected. Only the
head can detect a missing segment at the end: it names the segment that was begun last, and the last
batch before it. The head is written when a segment is begun, after the segment has its name and
before it has a frame. It is also written when the journal is emptied (after recovery, and when the
store is closed), before the first segment is removed.

The file has two slots of one block each, which are written in turn. An interrupted write damages
only its own slot; the other one stays valid.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ferrymq_broker.store.disk import File, Folder
from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.journal_frames import BLOCK
from ferrymq_broker.store.marker_files import decode_label, encode_label

HEAD_NAME: Final = "head"

_TITLE: Final = "ferrymq head"
_SLOTS: Final = 2
_NO_SEGMENT: Final = "none"


class HeadContent(NamedTuple):
    """The head's values. Batches up to `last` were on disk. `segment` is the name of the file that
    was begun last, "" while all batches are in the records."""

    last: int
    segment: str


class HeadFile:
    """The head of an open store. `value` is its content."""

    def __init__(self, file: File, value: HeadContent, turn: int) -> None:
        self.value: HeadContent = value
        self._file = file
        # The number of writes: the slot with the highest number is valid.
        self._turn = turn
        # Whether the current slot is synced. If it was just read, the process that wrote it may
        # have been killed before the sync.
        self._synced = False

    @classmethod
    def open(cls, folder: Folder) -> HeadFile:
        """Open the head of a store. Raises `StoreDamaged` if it is missing or cannot be read."""
        if HEAD_NAME not in folder.names():
            raise StoreDamaged(
                f"{folder.describe(HEAD_NAME)} is missing: without it nothing shows whether "
                "files of the journal are missing. Restore the whole directory of the store "
                "from a backup"
            )
        file = folder.open(HEAD_NAME)
        slots = [_decode(file.read(slot * BLOCK, BLOCK)) for slot in range(_SLOTS)]
        known = [slot for slot in slots if slot is not None]
        if not known:
            file.close()
            raise StoreDamaged(
                f"{folder.describe(HEAD_NAME)} is damaged: its content is not what ferrymq "
                "wrote. Restore the whole directory of the store from a backup"
            )
        turn, value = max(known)
        return cls(file, value, turn)

    @classmethod
    def create(cls, folder: Folder, value: HeadContent) -> HeadFile:
        """Create a head for a store that has none, and replace any file of that name."""
        head = cls(folder.create(HEAD_NAME), value, 0)
        for turn in range(_SLOTS):
            head._put(value, turn)
        folder.sync()
        head._synced = True
        return head

    def write(self, value: HeadContent) -> None:
        """Write this content to disk. Raises `OSError`, and can then be called again."""
        if not self._synced:
            # Make the current slot safe before the other one is overwritten.
            self._put(self.value, self._turn)
            self._synced = True
        if value != self.value:
            self._put(value, self._turn + 1)
            self.value = value

    def _put(self, value: HeadContent, turn: int) -> None:
        fields = {"turn": turn, "last": value.last, "segment": value.segment or _NO_SEGMENT}
        label = encode_label(_TITLE, fields)
        self._file.write(turn % _SLOTS * BLOCK, (label, bytes(BLOCK - len(label))))
        self._turn = turn

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_head(folder: Folder) -> HeadContent:
    """Return the content of the head. Raises `StoreDamaged` if it is missing or unreadable."""
    file = HeadFile.open(folder)
    file.close()
    return file.value


def require_whole(folder: Folder, head: HeadContent, applied: int) -> None:
    """Check, before the journal is read, that the store has the segment that the head names or, if
    the head names none, that the records have all batches. `applied` is their last batch. Raises
    `StoreDamaged`."""
    if head.segment and head.segment not in folder.names():
        raise StoreDamaged(
            f"{folder.describe(head.segment)} is missing: the file {HEAD_NAME} says that it "
            f"has the batches from {head.last + 1} on. Restore the whole directory of the "
            "store from a backup"
        )
    if not head.segment and applied < head.last:
        raise StoreDamaged(
            f"{folder.describe('data.mdb')} is too old: the records end with batch {applied}, "
            f"but the file {HEAD_NAME} says that they had batch {head.last}. Restore the whole "
            "directory of the store from a backup"
        )


def require_batches(folder: Folder, head: HeadContent, last: int) -> None:
    """Check that the journal, which ends with the batch `last`, has all batches that the head
    names. Raises `StoreDamaged`."""
    if last < head.last:
        raise StoreDamaged(
            f"{folder.describe()}: files of the journal are missing: the journal ends with "
            f"batch {last}, but the file {HEAD_NAME} says that it had batch {head.last}. "
            "Restore the whole directory of the store from a backup"
        )


def _decode(data: bytes) -> tuple[int, HeadContent] | None:
    fields = decode_label(_TITLE, data)
    if fields is None:
        return None
    turn, last, segment = (fields.get(key, "") for key in ("turn", "last", "segment"))
    if not turn.isdecimal() or not last.isdecimal():
        return None
    return int(turn), HeadContent(int(last), "" if segment == _NO_SEGMENT else segment)
