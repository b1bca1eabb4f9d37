"""The input of a connection: bytes that have arrived and are no whole frame yet."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from ferrymq.engine.unfinished import is_wasteful


@final
class InputBuffer:
    """Bytes in the order of their arrival. `data` from `pos` on is what can be read at once.

    Pieces of an incomplete frame are joined once, when at least `wanted` bytes are there: a frame
    may arrive byte by byte. Tiny pieces are joined earlier, because each needs memory of its own.
    """

    __slots__ = ("data", "pos", "wanted", "size", "_pieces")

    def __init__(self) -> None:
        self.data: bytes = b""
        self.pos: i64 = 0
        self.wanted: i64 = 0
        # Bytes that are not read, those of the pieces included.
        self.size: i64 = 0
        self._pieces: list[bytes] = []

    def add(self, piece: bytes) -> None:
        """Add bytes that have arrived."""
        if self.size == 0:
            self.data = piece
            self.pos = 0
        else:
            self._pieces.append(piece)
            if is_wasteful(len(self._pieces), self.size):
                self._pieces = [b"".join(self._pieces)]
        self.size += len(piece)

    def is_ready(self) -> bool:
        """Return whether `data` has something that was not looked at; join the pieces if they are
        enough."""
        if self.size == 0 or self.size < self.wanted:
            return False
        if self._pieces:
            self._pieces.insert(0, self.data[self.pos :])
            self.data = b"".join(self._pieces)
            self._pieces = []
            self.pos = 0
        self.wanted = 0
        return True

    def read(self, size: i64) -> None:
        """Move on by this number of bytes of `data`."""
        self.pos += size
        self.size -= size
        if self.size == 0:
            self.data = b""
            self.pos = 0

    def clear(self) -> None:
        """Drop everything."""
        self.data = b""
        self._pieces = []
        self.pos = self.size = self.wanted = 0
