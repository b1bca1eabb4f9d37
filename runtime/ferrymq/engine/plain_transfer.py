"""Transfers of the usual shape: a whole message in one frame (AMQP 1.0 §2.7.5).

Nearly all transfers have the handle, a delivery-id, a delivery-tag, a message-format and `settled`,
and nothing else that differs from its default. `PlainTransfer` reads such a transfer field by field
into numbers, without an object for each. Any other transfer is left to the decoder of the
specification's type, which also finds what is wrong with a malformed one. `OutgoingHalf.send_plain`
writes such transfers.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from ferrymq_codec import codes

_U32: Final = 0xFFFFFFFF
# The fields before the message-format, those up to `settled`, and all fields.
_UP_TO_FORMAT: Final = 3
_UP_TO_SETTLED: Final = 5
_FIELDS: Final = 11
# Fields that are not boolean, and the one that has no meaning here.
_RCV_SETTLE_MODE: Final = 6
_STATE: Final = 7
_BATCHABLE: Final = 10
# Bytes that are read in any case: up to 12 before the tag, and 4 of the tag or of what follows it.
_HEAD: Final = 16
_MAX_TAG: Final = 32


@final
class PlainTransfer:
    """Fields of the transfer that was read last. A tag of four bytes, as most senders use, is in
    `number`, and `tag` is None."""

    __slots__ = ("handle", "delivery_id", "tag", "number", "settled")

    def __init__(self) -> None:
        self.handle: i64 = 0
        self.delivery_id: i64 = 0
        self.tag: bytes | None = None
        self.number: i64 = 0
        self.settled: bool = False

    def read(self, data: bytes, pos: i64, end: i64) -> i64:
        """Read the list of a transfer that begins at `pos`, and return where the list ends.

        Return −1 if the transfer has another shape or does not end before `end`; it may be legal.
        """
        if pos + _HEAD > end:
            return -1
        # Eight bytes at a time: the codes of the list and the handle.
        word = read_i64_be(data, pos)
        limit = pos + 2 + ((word >> 48) & 0xFF)
        count = (word >> 40) & 0xFF
        if (
            (word >> 56) & 0xFF != codes.LIST8
            or limit > end
            or count < _UP_TO_SETTLED
            or count > _FIELDS
        ):
            return -1
        code = (word >> 32) & 0xFF
        if code == codes.UINT0:
            self.handle = 0
            pos += 4
        elif code == codes.SMALL_UINT:
            self.handle = (word >> 24) & 0xFF
            pos += 5
        else:
            return -1
        # The delivery-id, and the beginning of the delivery-tag.
        word = read_i64_be(data, pos)
        code = (word >> 56) & 0xFF
        if code == codes.UINT:
            self.delivery_id = (word >> 24) & _U32
            pos += 5
        elif code == codes.SMALL_UINT:
            self.delivery_id = (word >> 48) & 0xFF
            word >>= 24
            pos += 2
        elif code == codes.UINT0:
            self.delivery_id = 0
            word >>= 32
            pos += 1
        else:
            return -1
        size = (word >> 8) & 0xFF
        if (word >> 16) & 0xFF != codes.BINARY8 or size > _MAX_TAG or pos + size + 4 > limit:
            return -1
        pos += 2
        if size == 4:
            self.tag = None
            self.number = i64(read_i32_be(data, pos)) & _U32
        else:
            self.tag = data[pos : pos + size]
        pos += size
        if pos + 8 > end or limit - pos != count - _UP_TO_FORMAT:
            return -1
        # The message-format, which is 0 by default, and the flags, one byte each.
        word = read_i64_be(data, pos)
        code = (word >> 56) & 0xFF
        if code != codes.UINT0 and code != codes.NULL:
            return -1
        code = (word >> 48) & 0xFF
        if code != codes.TRUE and code != codes.FALSE and code != codes.NULL:
            return -1
        self.settled = code == codes.TRUE
        field: i64 = _UP_TO_SETTLED
        while field < count:
            code = (word >> (80 - 8 * field)) & 0xFF
            if code != codes.NULL:
                boolean = field < _RCV_SETTLE_MODE or field > _STATE
                if not (code == codes.FALSE and boolean) and (
                    code != codes.TRUE or field != _BATCHABLE
                ):
                    return -1
            field += 1
        return limit
