"""Readers of chunks for code that blocks."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Self
from uuid import UUID

from ferrymq import aio
from ferrymq.blocking.portal import Portal
from ferrymq.chunks import Chunk
from ferrymq.errors import LinkDetached


class ChunkReader:
    """Reads a partition chunk by chunk; the blocking face of `ferrymq.aio.ChunkReader`.

    ``for chunk in reader`` gives chunks without gaps between them, and ends behind the last record
    before `until`, or when the reader is closed by this side.
    """

    def __init__(self, portal: Portal, reader: aio.ChunkReader) -> None:
        self._portal = portal
        self._reader = reader

    @property
    def name(self) -> str:
        """Name of the link."""
        return self._reader.name

    @property
    def address(self) -> str | None:
        """The partition that is read."""
        return self._reader.address

    @property
    def first_offset(self) -> int:
        """Where reading began: `start`, or the first record there was if that is gone."""
        return self._reader.first_offset

    @property
    def incarnation(self) -> UUID:
        """Tells the stream from others that have had, or will have, the same name."""
        return self._reader.incarnation

    @property
    def until(self) -> int | None:
        """The offset before which reading ends, None if it does not."""
        return self._reader.until

    @property
    def next_offset(self) -> int:
        """The offset that the next chunk begins with."""
        return self._reader.next_offset

    @property
    def skipped(self) -> int:
        """How many records were gone before they could be read, with ``on_trim="continue"``."""
        return self._reader.skipped

    @property
    def properties(self) -> dict[str, object]:
        """The properties in the broker's attach (AMQP 1.0 §2.7.3)."""
        return self._reader.properties

    @property
    def queued(self) -> int:
        """How many chunks have arrived and have not been taken."""
        return self._reader.queued

    @property
    def closed(self) -> bool:
        """Whether the link is over."""
        return self._reader.closed

    def receive(self, *, timeout: float | None = None) -> Chunk | None:
        """Take the next chunk, None behind the last; see `aio.ChunkReader.receive`."""
        return self._portal.run(
            lambda: self._reader.receive(timeout=timeout), self._reader.put_back
        )

    def close(self) -> None:
        """Close the link; see `aio.ChunkReader.close`."""
        if not self._reader.closed and not self._portal.foreign:
            self._portal.run(self._reader.close)

    def __iter__(self) -> Iterator[Chunk]:
        while True:
            try:
                chunk = self.receive()
            except LinkDetached:
                if self._reader.closed_here:
                    return
                raise
            if chunk is None:
                return
            yield chunk

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
