"""Opens and closes lists, maps and described lists in a BytesWriter (AMQP 1.0 §1.6.22, §1.6.23).

A header is written with one-byte sizes before the content is known, and filled in when the value is
closed. If the content is too large for one-byte sizes, the header is replaced by the four-byte
form.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i32, i64, u8

from ferrymq_codec import codes
from ferrymq_codec.errors import EncodeError
from ferrymq_codec.limits import MAX_U32

# The additional bytes of a wide header: three for the size and three for the count.
GROWTH: Final = 6


def write_u32(w: BytesWriter, value: i64) -> None:
    """Append four bytes, big-endian, without a constructor: a size or count below 2**32."""
    write_i32_be(w, i32(value if value < 0x80000000 else value - 0x100000000))


def write_descriptor(w: BytesWriter, code: i64) -> None:
    """Append 0x00 and a numeric descriptor, which the value it describes must follow (§1.2)."""
    w.append(codes.DESCRIBED)
    if 0 <= code < 256:
        w.append(codes.SMALL_ULONG)
        w.append(u8(code))
    else:
        w.append(codes.ULONG)
        write_i64_be(w, code)


def descriptor_bytes(code: i64) -> bytes:
    """Return the bytes that `write_descriptor` writes, for encodings that are known beforehand."""
    w = BytesWriter()
    write_descriptor(w, code)
    return w.getvalue()


def begin_composite(w: BytesWriter, code: i64) -> i64:
    """Append a numeric descriptor and open a list; returns the mark that `end_list` needs."""
    w.append(codes.DESCRIBED)
    if 0 <= code < 256:
        w.append(codes.SMALL_ULONG)
        w.append(u8(code))
    else:
        w.append(codes.ULONG)
        write_i64_be(w, code)
    w.append(codes.LIST8)
    w.append(0)
    w.append(0)
    return len(w)


def write_empty_composite(w: BytesWriter, code: i64) -> None:
    """Append a numeric descriptor and an empty list."""
    w.append(codes.DESCRIBED)
    if 0 <= code < 256:
        w.append(codes.SMALL_ULONG)
        w.append(u8(code))
    else:
        w.append(codes.ULONG)
        write_i64_be(w, code)
    w.append(codes.LIST0)


def begin_list(w: BytesWriter) -> i64:
    """Open a list; returns the mark that `end_list` needs."""
    w.append(codes.LIST8)
    w.append(0)
    w.append(0)
    return len(w)


def begin_map(w: BytesWriter) -> i64:
    """Open a map; returns the mark that `end_map` needs."""
    w.append(codes.MAP8)
    w.append(0)
    w.append(0)
    return len(w)


def end_list(w: BytesWriter, mark: i64, count: i64) -> None:
    """Close a list of `count` elements that was opened at `mark`."""
    size = i64(len(w)) - mark + 1
    if size < 256 and count < 256:
        if count == 0:
            w.truncate(mark - 3)
            w.append(codes.LIST0)
            return
        w[mark - 2] = u8(size)
        w[mark - 1] = u8(count)
        return
    widen(w, mark, count, codes.LIST32)


def end_map(w: BytesWriter, mark: i64, count: i64) -> None:
    """Close a map that was opened at `mark`; `count` is that of keys and values together."""
    size = i64(len(w)) - mark + 1
    if size < 256 and count < 256:
        w[mark - 2] = u8(size)
        w[mark - 1] = u8(count)
        return
    widen(w, mark, count, codes.MAP32)


def widen(w: BytesWriter, mark: i64, count: i64, code: u8) -> None:
    """Replace the narrow header before `mark` by a wide one with constructor `code`."""
    total: i64 = len(w)
    size = total - mark
    if size + 4 > MAX_U32 or count > MAX_U32:
        raise EncodeError("value", f"{size} bytes do not fit one list, map or array")
    if total < size * 16:
        # Copying all written data is a memcpy: cheaper unless the content is a small part.
        content = w.getvalue()[mark:]
        w.truncate(mark - 3)
        w.append(code)
        write_u32(w, size + 4)
        write_u32(w, count)
        w.write(content)
        return
    i: i64 = 0
    while i < GROWTH:
        w.append(0)
        i += 1
    i = total - 1
    while i >= mark:
        w[i + GROWTH] = w[i]
        i -= 1
    w[mark - 3] = code
    _patch(w, mark - 2, size + 4)
    _patch(w, mark + 2, count)


def _patch(w: BytesWriter, at: i64, value: i64) -> None:
    w[at] = u8((value >> 24) & 0xFF)
    w[at + 1] = u8((value >> 16) & 0xFF)
    w[at + 2] = u8((value >> 8) & 0xFF)
    w[at + 3] = u8(value & 0xFF)
