"""Readers of chunks for code that blocks."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from ferrymq import aio
from ferrymq.blocking.face import Face
from ferrymq.chunks import Chunk
from ferrymq.durations import Duration
from ferrymq.errors import LinkDetached


class ChunkReader(Face[aio.ChunkReader]):
    """Blocking face of `ferrymq.aio.ChunkReader`: reads a partition chunk by chunk.

    ``for chunk in reader`` gives chunks without gaps between them, and ends after the last record
    before `until`, or when this side closes the reader.
    """

    @property
    def name(self) -> str:
        """Name of the link."""
        return self._behind.name

    @property
    def address(self) -> str | None:
        """The partition that the reader reads."""
        return self._behind.address

    @property
    def first_offset(self) -> int:
        """The offset at which reading began: `start`, or the first record if that was deleted."""
        return self._behind.first_offset

    @property
    def incarnation(self) -> UUID:
        """Identifier that tells the stream from earlier and later ones of the same name."""
        return self._behind.incarnation

    @property
    def until(self) -> int | None:
        """The offset before which reading ends, None if it does not."""
        return self._behind.until

    @property
    def next_offset(self) -> int:
        """The offset at which the next chunk begins."""
        return self._behind.next_offset

    @property
    def skipped(self) -> int:
        """Number of records that were deleted before they could be read, with
        ``on_trim="continue"``."""
        return self._behind.skipped

    @property
    def properties(self) -> dict[str, object]:
        """The properties in the broker's attach (AMQP 1.0 §2.7.3)."""
        return self._behind.properties

    @property
    def queued(self) -> int:
        """How many chunks have arrived and have not been taken."""
        return self._behind.queued

    @property
    def closed(self) -> bool:
        """Whether the link is over."""
        return self._behind.closed

    @property
    def closed_here(self) -> bool:
        """Whether this side ended the link."""
        return self._behind.closed_here

    def receive(self, *, timeout: Duration | None = None) -> Chunk | None:
        """Take the next chunk; None after the last one; see `aio.ChunkReader.receive`."""
        return self._portal.run(
            lambda: self._behind.receive(timeout=timeout), self._behind.put_back
        )

    def close(self) -> None:
        """Close the link; see `aio.ChunkReader.close`."""
        if not self._behind.closed and not self._portal.foreign:
            self._portal.run(self._behind.close)

    def __iter__(self) -> Iterator[Chunk]:
        while True:
            try:
                chunk = self.receive()
            except LinkDetached:
                if self._behind.closed_here:
                    return
                raise
            if chunk is None:
                return
            yield chunk
