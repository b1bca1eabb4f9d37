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
"""What the name of a file begins with that is not complete."""

HOUR: Final = 3_600_000
"""An hour, in milliseconds."""

_SAFE: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")
# Readers pass over what begins so; the last one looks like an option to commands.
_NOT_FIRST: Final = frozenset(b"_.-")
# File systems end at 255 bytes.
_LONGEST: Final = 200
_HASH: Final = 16

_NAME: Final = re.compile(
    r"date=(\d{4}-\d{2}-\d{2})/hour=(\d{2})/"
    r"p(0|[1-9]\d{0,8})-(0|[1-9]\d{0,18})-(0|[1-9]\d{0,18})\.parquet"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class CaptureName(NamedTuple):
    """A capture file: the records of `partition` from the offset `first` to `last`, both included.

    `hour` is that of its records: hours since the epoch.
    """

    hour: int
    partition: int
    first: int
    last: int

    @property
    def next(self) -> int:
        """The offset behind its last record."""
        return self.last + 1

    @property
    def folder(self) -> str:
        """Its folder in that of the stream: ``date=2026-03-07/hour=09``."""
        return (_EPOCH + timedelta(hours=self.hour)).strftime("date=%Y-%m-%d/hour=%H")

    @property
    def file(self) -> str:
        """Its name in its folder: ``p0-0-19999.parquet``."""
        return f"p{self.partition}-{self.first}-{self.last}.parquet"

    @property
    def path(self) -> str:
        """Its path from the folder of the stream."""
        return f"{self.folder}/{self.file}"


def hour_of(time: int) -> int:
    """The hour of a time in milliseconds since the epoch."""
    return time // HOUR


def parse_name(path: str) -> CaptureName | None:
    """Return what a path says whose end is the name of a capture file; None for others."""
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
    """The name of the folder with the files of a stream."""
    folder = "".join(
        chr(byte) if byte in _SAFE and not (at == 0 and byte in _NOT_FIRST) else f"%{byte:02X}"
        for at, byte in enumerate(name.encode())
    )
    if len(folder) <= _LONGEST:
        return folder
    return f"{folder[: _LONGEST - _HASH - 1]}~{sha256(name.encode()).hexdigest()[:_HASH]}"
