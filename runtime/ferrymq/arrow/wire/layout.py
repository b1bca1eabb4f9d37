"""Messages and numbers as consecutive bytes, in the layout of a chunk."""

from __future__ import annotations

from collections.abc import Sequence

from librt.strings import BytesWriter, write_i32_le, write_i64_le
from mypy_extensions import i32, i64


def join(payloads: list[bytes], formats: Sequence[int] | None) -> bytes:
    """Return the positions of the payloads and of their end, the formats if given, and the
    payloads.

    The positions count from the first payload on. The payloads are less than 2 GiB.
    """
    w = BytesWriter()
    end: i64 = 0
    write_i32_le(w, 0)
    for payload in payloads:
        end += len(payload)
        write_i32_le(w, i32(end))
    if formats is not None:
        for format in formats:
            number: i64 = format
            write_i32_le(w, i32(number if number < 0x8000_0000 else number - 0x1_0000_0000))
    return b"".join([w.getvalue(), *payloads])


def offsets(first: i64, count: i64) -> bytes:
    """Return the numbers from `first` on, `count` of them, 8 bytes each."""
    w = BytesWriter()
    i: i64 = 0
    while i < count:
        write_i64_le(w, first + i)
        i += 1
    return w.getvalue()
