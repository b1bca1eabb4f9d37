"""A reader of files with bytes, raw or as a hex dump.

A hex dump is output of ``hexdump -C``, ``xxd`` or ``tshark -z follow,tcp,raw``, or digits only. A
line that begins with ``<`` or, as in tshark, with a tab belongs to the other direction.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO, Final

OUT: Final = "->"
BACK: Final = "<-"

_PIECE: Final = 1 << 16
# The most bytes of a line of a dump.
_LINE: Final = 1 << 16

_PCAPS: Final = tuple(map(bytes.fromhex, ("a1b2c3d4", "d4c3b2a1", "4d3cb2a1", "0a0d0d0a")))
_ARROWS: Final = re.compile(rb"\s*(->|<-|>|<)\s*")
# `00000010  41 4d` of hexdump, or `00000010: 414d` of xxd; the last line has no bytes.
_OFFSET: Final = re.compile(rb"\s*(?:0x)?[0-9a-f]{4,16}(:\s*|\s\s+|\s*$)", re.I)
_DIGITS: Final = re.compile(rb"\s*([0-9a-f]{2}(?:[\s:]*[0-9a-f]{2})*)", re.I)


class NotReadableError(ValueError):
    """An exception: the file is of another kind. The message says what to do."""


def read(file: BinaryIO) -> Iterator[tuple[str, bytes]]:
    """Yield the bytes of a file in pieces, each with its direction. Raises `NotReadableError`."""
    first = file.read(_PIECE)
    if first[:4] in _PCAPS:
        raise NotReadableError(
            "the file is a packet capture; only its TCP streams can be read: tshark -r FILE "
            "-q -z follow,tcp,raw,0 | ferrymq trace -"
        )
    if is_dump(first):
        yield from _dumped(file, first)
        return
    while first:
        yield OUT, first
        first = file.read(_PIECE)


def is_dump(beginning: bytes) -> bool:
    """Return whether a file with this beginning is a hex dump: its first lines have digits, and
    there are no unprintable characters."""
    if not beginning.strip() or beginning.startswith(b"AMQP"):
        return False
    if any(byte < 32 and byte not in b"\t\r\n" for byte in beginning[:4096]):
        return False
    lines = [line for line in beginning[:4096].splitlines()[:20] if line.strip()]
    found = Lines()
    good = sum(found.digits(line)[1] != b"" for line in lines)
    return good * 2 >= len(lines) > 0


def _dumped(file: BinaryIO, first: bytes) -> Iterator[tuple[str, bytes]]:
    found = Lines()
    rest = b""
    data = first
    while data:
        lines = (rest + data).split(b"\n")
        rest = lines.pop()
        if len(rest) > _LINE:
            # Digits without line ends. Every two are a byte.
            lines.append(rest[: len(rest) // 2 * 2])
            rest = rest[len(rest) // 2 * 2 :]
        for line in lines:
            arrow, content = found.digits(line)
            if content:
                yield arrow, content
        data = file.read(_PIECE)
    arrow, content = found.digits(rest)
    if content:
        yield arrow, content


class Lines:
    """The lines of one dump."""

    def __init__(self) -> None:
        # Whether there were offsets before the digits.
        self._offsets = False

    def digits(self, line: bytes) -> tuple[str, bytes]:
        """Return direction and bytes of one line; no bytes if it has no digits."""
        arrow = BACK if line.startswith(b"\t") else OUT
        marked = _ARROWS.match(line)
        if marked is not None:
            arrow = BACK if marked[1].startswith(b"<") else OUT
            line = line[marked.end() :]
        offset = _OFFSET.match(line)
        if offset is not None and (self._offsets or offset[1].strip(b"\r")):
            self._offsets = True
            line = line[offset.end() :].lstrip()
            # The same bytes follow as characters.
            line = line.split(b"  " if offset[1].startswith(b":") else b"|", 1)[0]
        found = _DIGITS.match(line)
        if found is None or line[found.end() :].strip():
            return arrow, b""
        return arrow, bytes.fromhex(re.sub(rb"[\s:]", b"", found[1]).decode())
