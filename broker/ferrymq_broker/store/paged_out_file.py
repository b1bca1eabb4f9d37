"""The file `paged-out`: blocks that a closed store keeps for the next start.

Only the broker knows what the blocks mean (`recovery/paged_out.py`). They are valid only for the
records of one batch, so the file names that batch and its `data.mdb`. It is read and removed when
the store is opened. Without it the start takes longer, with the same result.

The file is a label of 4096 bytes, then each block: length u32, CRC-32C u32, bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import google_crc32c

from ferrymq_broker.event_log import log
from ferrymq_broker.store.disk import File, Folder
from ferrymq_broker.store.marker_files import decode_label, encode_label

PAGED_OUT_NAME: Final = "paged-out"

_TITLE: Final = "ferrymq paged out"
_DATA_NAME: Final = "data.mdb"
_VERSION: Final = "1"
_LABEL_BYTES: Final = 4096
_HEAD_BYTES: Final = 8
# Bytes per write.
_AT_ONCE: Final = 1 << 23

_crc: Final[Any] = google_crc32c.value


def write_paged_out(folder: Folder, applied: int, blocks: Sequence[bytes]) -> None:
    """Write blocks that are valid for the records with the batch `applied`. If that fails, no file
    remains."""
    if not blocks:
        return
    try:
        file = folder.create(PAGED_OUT_NAME)
        try:
            _write(file, _label(folder, applied, len(blocks)), blocks)
        finally:
            file.close()
    except OSError as error:
        log.warning("the next start takes longer", reason=str(error), store=folder.describe())
        try:
            folder.remove(PAGED_OUT_NAME)
        except OSError:
            # If the disk accepts no write at all, the file `clean` is not written either.
            return


def take_paged_out(folder: Folder, applied: int) -> list[bytes]:
    """Return the blocks that are valid for the records with the batch `applied`, if any, and remove
    the file. Raises `OSError`."""
    if PAGED_OUT_NAME not in folder.names():
        return []
    file = folder.open(PAGED_OUT_NAME)
    try:
        blocks = _read(file, folder, applied)
    finally:
        file.close()
    folder.remove(PAGED_OUT_NAME)
    return blocks


def _label(folder: Folder, applied: int, count: int) -> bytes:
    fields = {
        "version": _VERSION,
        "batch": applied,
        "records": folder.identity(_DATA_NAME),
        "blocks": count,
    }
    label = encode_label(_TITLE, fields)
    return label + bytes(_LABEL_BYTES - len(label))


def _write(file: File, label: bytes, blocks: Sequence[bytes]) -> None:
    parts = [label]
    position = 0
    size = len(label)
    for block in blocks:
        parts.append(len(block).to_bytes(4, "big") + _crc(block).to_bytes(4, "big"))
        parts.append(block)
        size += _HEAD_BYTES + len(block)
        if size >= _AT_ONCE:
            file.write(position, (b"".join(parts),))
            position += size
            parts = []
            size = 0
    file.write(position, (b"".join(parts),))


def _read(file: File, folder: Folder, applied: int) -> list[bytes]:
    label = file.read(0, _LABEL_BYTES)
    fields = decode_label(_TITLE, label) or {}
    count = fields.get("blocks", "")
    if not count.isdecimal() or label != _label(folder, applied, int(count)):
        return []
    end = file.size()
    blocks: list[bytes] = []
    position = _LABEL_BYTES
    while len(blocks) < int(count):
        head = file.read(position, _HEAD_BYTES)
        position += _HEAD_BYTES
        size = int.from_bytes(head[:4], "big")
        if size > end - position:
            return []
        block = file.read(position, size)
        position += size
        if _crc(block) != int.from_bytes(head[4:], "big"):
            return []
        blocks.append(block)
    return blocks
