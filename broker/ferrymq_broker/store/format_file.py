"""The files `format` and `clean`: the version of a store, and whether it was closed.

`format` is written last when a store is created. `clean` exists while a store is closed: a
directory without it is in use, or its process was killed.

Format 1 had no file `head`. A store of format 1 becomes one of format 2 at its first opening: first
the head is written, then `format` again, so that versions which do not know the head refuse it.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple
from uuid import UUID, uuid5

from ferrymq_broker.store.disk import Folder
from ferrymq_broker.store.errors import StoreDamaged, StoreVersionError
from ferrymq_broker.store.marker_files import decode_label, encode_label

FORMAT: Final = 2
OLDEST_FORMAT: Final = 1
FORMAT_NAME: Final = "format"
CLEAN_NAME: Final = "clean"
_NEW_NAME: Final = "format.new"
_DATA_NAME: Final = "data.mdb"

_TITLE: Final = "ferrymq store"
# The name that the ids of stores are made of.
_ID_NAME: Final = "ferrymq:broker-id"


class StoreFormat(NamedTuple):
    """The content of the file `format`. The `secret` is part of the checksums of this store's
    frames."""

    version: int
    secret: bytes


def read_format(folder: Folder) -> StoreFormat | None:
    """Return the format of the store, None if there is no store yet.

    Raises `StoreVersionError` for a format that this version cannot use, `StoreDamaged` for a file
    that is not a format file.
    """
    if FORMAT_NAME not in folder.names():
        return None
    where = folder.describe(FORMAT_NAME)
    file = folder.open(FORMAT_NAME)
    try:
        data = file.read(0, 4096)
    finally:
        file.close()
    lines = data.decode("ascii", "replace").splitlines()
    said = dict(line.partition(": ")[::2] for line in lines[1:])
    version = said.get("format", "")
    if lines[:1] != [_TITLE] or not version.isdecimal():
        raise StoreDamaged(
            f"{where} is damaged: it has no format number. Restore the whole directory of the "
            "store from a backup"
        )
    if int(version) > FORMAT:
        raise StoreVersionError(
            f"{where}: the store has format {version}; this version of ferrymq knows the "
            f"formats up to {FORMAT}. Start the version that wrote the store, or a newer one"
        )
    if int(version) < OLDEST_FORMAT:
        raise StoreVersionError(
            f"{where}: the store has format {version}, which is too old for this version of "
            "ferrymq. Export it with the version that wrote it, and import it with this one"
        )
    fields = decode_label(_TITLE, data) or {}
    try:
        secret = bytes.fromhex(fields.get("secret", ""))
    except ValueError:
        secret = b""
    # With another secret no frame of the journal would be valid.
    if len(secret) != 16:
        raise StoreDamaged(
            f"{where} is damaged: its content is not what ferrymq wrote. Restore the whole "
            "directory of the store from a backup"
        )
    return StoreFormat(int(version), secret)


def write_format(folder: Folder, secret: bytes = b"") -> StoreFormat:
    """Write the newest format to `format`, with a new secret if none is given."""
    format = StoreFormat(FORMAT, secret or os.urandom(16))
    fields = {"format": format.version, "secret": format.secret.hex()}
    file = folder.create(_NEW_NAME)
    try:
        file.write(0, (encode_label(_TITLE, fields),))
    finally:
        file.close()
    folder.rename(_NEW_NAME, FORMAT_NAME)
    folder.sync()
    return format


def store_id(secret: bytes) -> str:
    """Return the id of the store with this secret: a UUID of version 5 (RFC 9562 §5.5), from which
    the secret cannot be computed. A copy of the store has the same id."""
    return str(uuid5(UUID(bytes=secret), _ID_NAME))


def read_clean(folder: Folder) -> int | None:
    """Return the last batch of a closed store, None if it was not closed; 0 if it is unknown."""
    if CLEAN_NAME not in folder.names():
        return None
    file = folder.open(CLEAN_NAME)
    try:
        text = file.read(0, 32).strip()
    finally:
        file.close()
    return int(text) if text.isdigit() else 0


def require_closed_at(folder: Folder, clean: int, applied: int) -> None:
    """Check that the records, which end with the batch `applied`, have the last batch of the proper
    close. Raises `StoreDamaged`."""
    # 0: the mark has no number, it may have been lost.
    if applied < clean or (clean and applied > clean):
        raise StoreDamaged(
            f"{folder.describe(_DATA_NAME)} or {folder.describe(CLEAN_NAME)} is damaged: "
            f"the records end with batch {applied}, but {CLEAN_NAME} says that they had "
            f"batch {clean} when the store was closed. If {_DATA_NAME} was replaced by "
            "another file, restore the whole directory from one backup. If no file was "
            f"changed, remove {CLEAN_NAME}: everything acknowledged is in the records and "
            "in the journal"
        )


def remove_clean(folder: Folder) -> None:
    """Mark the store as in use."""
    if CLEAN_NAME in folder.names():
        folder.remove(CLEAN_NAME)
        folder.sync()


def write_clean(folder: Folder, last: int) -> None:
    """Mark the store as closed: everything up to the `last` batch is in the records."""
    file = folder.create(CLEAN_NAME)
    try:
        file.write(0, (b"%d\n" % last,))
    finally:
        file.close()
    folder.sync()
