"""Batches: many messages in the payload of one transfer.

A sender to a stream asks for batches with the property `BATCHES` = true in its attach. If the
answer has the same property, its deliveries, also those in transactions, may have the
message-format `BATCH_FORMAT`: each of their data sections is an encoded message of its own. A batch
is taken or refused as a whole.

The format is the one in which Azure's clients send batches.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, write_i32_be
from mypy_extensions import i32, i64

from ferrymq_codec import codes
from ferrymq_codec.compound import descriptor_bytes
from ferrymq_types.descriptors import DATA

# The property of an attach.
BATCHES: Final = "ferrymq:batches"

# The message-format of a delivery that is a batch.
BATCH_FORMAT: Final = 0x80013700

BATCH_BYTES: Final = 65_536
"""The most bytes of the batches of a sender: other clients wait while a batch is taken apart."""
BATCH_MESSAGES: Final = 1_000
"""The most messages of the batches of a sender."""

SECTION_BYTES: Final = 8
"""The bytes of a batch that each message adds to its own."""

_HEAD: Final = descriptor_bytes(DATA) + bytes((codes.BINARY32,))


@final
class BatchBuilder:
    """Builder of batches of at most `limit` bytes, one after the other."""

    __slots__ = ("limit", "_writer")

    def __init__(self, limit: i64) -> None:
        self.limit: i64 = limit
        self._writer = BytesWriter()

    def end_of(self, payloads: list[bytes], first: i64, end: i64) -> i64:
        """Return where the batch ends that begins with message `first`: at least one message after
        that, and at most at `end`."""
        size: i64 = 0
        if end > first + BATCH_MESSAGES:
            end = first + BATCH_MESSAGES
        index = first
        while index < end:
            size += SECTION_BYTES + i64(len(payloads[index]))
            if size > self.limit and index > first:
                break
            index += 1
        return index

    def build(self, payloads: list[bytes], first: i64, end: i64) -> bytes:
        """Return the batch of the encoded messages from `first` to before `end`."""
        w = self._writer
        w.truncate(0)
        index = first
        while index < end:
            payload = payloads[index]
            w.write(_HEAD)
            write_i32_be(w, i32(len(payload)))
            w.write(payload)
            index += 1
        return w.getvalue()
