"""Numbered messages: making them, and checking that each arrived once and in order.

The body is one data section (AMQP 1.0 §3.2.6): the numbers of the run and of the message, eight
bytes each, then a filling that is the same in all messages of the run.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import read_i64_be
from mypy_extensions import i64

from bench.encoding import data_head
from ferrymq_codec.errors import DecodeError
from ferrymq_codec.reader import Reader
from ferrymq_types import descriptors

MIN_SIZE: Final = 16


@final
class Numbered:
    """The messages of one run, with `size` bytes of body each."""

    __slots__ = ("run", "size", "_head", "_tail")

    def __init__(self, run: int, size: int) -> None:
        if size < MIN_SIZE:
            raise ValueError(f"a body of {size} bytes cannot hold the numbers: {MIN_SIZE} at least")
        self.run = run
        self.size = size
        self._head = data_head(size) + run.to_bytes(8, "big")
        self._tail = bytes([i % 251 for i in range(size - MIN_SIZE)])

    def message(self, number: int) -> bytes:
        """Return the encoded message with that number."""
        return self._head + number.to_bytes(8, "big") + self._tail

    def number(self, message: bytes) -> int:
        """Return a message's number; −1 if it belongs to another run, −2 if it is damaged."""
        reader = Reader(message)
        try:
            while reader.pos < reader.end:
                if reader.read_descriptor("message") != descriptors.DATA:
                    reader.skip_value("message")
                    continue
                body = reader.read_binary("data")
                if len(body) < MIN_SIZE or read_i64_be(body, 0) != self.run:
                    return -1
                if len(body) != self.size or body[MIN_SIZE:] != self._tail:
                    return -2
                return read_i64_be(body, 8)
        except DecodeError:
            return -2
        return -1


@final
class Tally:
    """A count of the messages 0 … `total` − 1 that have arrived."""

    __slots__ = ("total", "received", "duplicated", "reordered", "damaged", "foreign",
                 "_seen", "_highest")  # fmt: skip

    def __init__(self, total: int) -> None:
        self.total: i64 = total
        # Distinct messages of this run.
        self.received: i64 = 0
        self.duplicated: i64 = 0
        # Messages that arrived after one with a higher number.
        self.reordered: i64 = 0
        self.damaged: i64 = 0
        self.foreign: i64 = 0
        self._seen = bytearray(total)
        self._highest: i64 = -1

    def add(self, number: int) -> None:
        """Count a message that arrived, by the result of `Numbered.number`."""
        n: i64 = number
        if n == -2:
            self.damaged += 1
        elif n < 0 or n >= self.total:
            self.foreign += 1
        elif self._seen[n]:
            self.duplicated += 1
        else:
            self._seen[n] = 1
            self.received += 1
            if n < self._highest:
                self.reordered += 1
            else:
                self._highest = n

    @property
    def lost(self) -> int:
        """The number of messages that have not arrived."""
        return self.total - self.received
