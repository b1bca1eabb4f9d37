"""The names of capture files, and of the folders they are in.

    orders/date=2026-03-07/hour=09/p0-0-19999.parquet

A stream's folder is its name, in which everything but letters and digits of ASCII, ``_``, ``.``
and ``-`` is written as ``%XX``, a ``_``, ``.`` or ``-`` at the beginning too: no file system, no
glob and no reader of ``key=value`` folders takes it for something else. A name that gets too long
ends in ``~`` and a part of its SHA-256; ``_stream.json`` has it in full.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final, NamedTuple

TMP: Final = "_tmp-"
"""The beginning of the name of an incomplete file."""

HOUR: Final = 3_600_000
"""An hour, in milliseconds."""

_SAFE: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")
# Readers ignore names that begin with these; commands take the last one for an option.
_NOT_FIRST: Final = frozenset(b"_.-")
# File systems allow 255 bytes.
_LONGEST: Final = 200
_HASH: Final = 16

_NAME: Final = re.compile(
    r"date=(\d{4}-\d{2}-\d{2})/hour=(\d{2})/"
    r"p(0|[1-9]\d{0,8})-(0|[1-9]\d{0,18})-(0|[1-9]\d{0,18})\.parquet"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class CaptureName(NamedTuple):
    """Capture file: the records of `partition` from the offset `first` to `last`, both included.

    `hour` is that of its records: hours since the epoch.
    """

    hour: int
    partition: int
    first: int
    last: int

    @property
    def next(self) -> int:
        """The offset after its last record."""
        return self.last + 1

    @property
    def folder(self) -> str:
        """The folder of the file within that of the stream: ``date=2026-03-07/hour=09``."""
        return (_EPOCH + timedelta(hours=self.hour)).strftime("date=%Y-%m-%d/hour=%H")

    @property
    def file(self) -> str:
        """The name of the file in its folder: ``p0-0-19999.parquet``."""
        return f"p{self.partition}-{self.first}-{self.last}.parquet"

    @property
    def path(self) -> str:
        """The path of the file from the folder of the stream."""
        return f"{self.folder}/{self.file}"


def hour_of(time: int) -> int:
    """Return the hour of a time in milliseconds since the epoch."""
    return time // HOUR


def parse_name(path: str) -> CaptureName | None:
    """Parse a path that ends with the name of a capture file; return None for any other path."""
    parts = path.rsplit("/", 3)[-3:]
    found = _NAME.fullmatch("/".join(parts))
    if found is None:
        return None
    try:
        day = datetime.strptime(found[1], "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return None
    hour, partition, first, last = (int(each) for each in found.groups()[1:])
    if hour > 23 or last < first:
        return None
    return CaptureName((day - _EPOCH).days * 24 + hour, partition, first, last)


def stream_folder(name: str) -> str:
    """Return the name of the folder with the files of a stream."""
    folder = "".join(
        chr(byte) if byte in _SAFE and not (at == 0 and byte in _NOT_FIRST) else f"%{byte:02X}"
        for at, byte in enumerate(name.encode())
    )
    if len(folder) <= _LONGEST:
        return folder
    return f"{folder[: _LONGEST - _HASH - 1]}~{sha256(name.encode()).hexdigest()[:_HASH]}"
