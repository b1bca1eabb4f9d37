"""The file `in-use`, which exists from the opening of a store to its closing.

It holds the inode numbers of itself and of the records. A copy has the same content but other
numbers, so a copy of a store that was not closed is detected. The files of such a copy may be from
different moments, because a broker may have written to them during the copying.
"""

from __future__ import annotations

from typing import Final

from ferrymq_broker.store.disk import Folder
from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.marker_files import decode_label, encode_label

IN_USE_NAME: Final = "in-use"
_NEW_NAME: Final = "in-use.new"
_DATA_NAME: Final = "data.mdb"

_TITLE: Final = "ferrymq store in use"


def require_original(folder: Folder) -> None:
    """Check that a store that was not closed is not a copy. Raises `StoreDamaged`."""
    if IN_USE_NAME not in folder.names():
        return
    file = folder.open(IN_USE_NAME)
    try:
        fields = decode_label(_TITLE, file.read(0, 4096))
    finally:
        file.close()
    where = folder.describe(IN_USE_NAME)
    if fields is None:
        raise StoreDamaged(
            f"{where} is damaged: its content is not what ferrymq wrote. If the files of the "
            f"store were not copied from another directory, remove {IN_USE_NAME}"
        )
    known = _identities(folder, IN_USE_NAME)
    # Missing records are reported by another check.
    if any(value and fields.get(key) != value for key, value in known.items()):
        raise StoreDamaged(
            f"{where}: this is a copy of a store that was not closed. If a broker used the "
            "store while it was copied, messages are missing in the copy: make a new copy "
            "with ferrymq store backup. If no broker used it, or all files were copied at the "
            f"same moment, remove {IN_USE_NAME}"
        )


def mark_in_use(folder: Folder) -> None:
    """Mark these files as in use. Raises `OSError`."""
    if IN_USE_NAME in folder.names():
        return
    file = folder.create(_NEW_NAME)
    try:
        file.write(0, (encode_label(_TITLE, _identities(folder, _NEW_NAME)),))
    finally:
        file.close()
    folder.rename(_NEW_NAME, IN_USE_NAME)
    folder.sync()


def unmark(folder: Folder) -> None:
    """Remove the mark; the removal is on disk with the next `Folder.sync`."""
    if IN_USE_NAME in folder.names():
        folder.remove(IN_USE_NAME)


def _identities(folder: Folder, name: str) -> dict[str, str]:
    return {"this-file": folder.identity(name), "records": folder.identity(_DATA_NAME)}
