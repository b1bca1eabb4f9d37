"""Wildcards in patterns of addresses: ``*`` for any characters or none, ``?`` for one character.

A pattern is compared as a list of codes: the code point of a character, or the code of a wildcard.
So a character that looks like a wildcard can stand for itself.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

ANY: Final = "*"
ONE: Final = "?"
_ANY: Final = -1
_ONE: Final = -2
# The code after the last one; no character has it.
_END: Final = -3


def pattern_codes(text: str) -> list[int]:
    """Return the codes of a pattern, in which `*` and `?` are wildcards."""
    return [_ANY if char == ANY else _ONE if char == ONE else ord(char) for char in text]


def literal_codes(text: str) -> list[int]:
    """Return the codes of a text without wildcards: each character stands for itself."""
    return [ord(char) for char in text]


def wildcards_match(pattern: list[int], name: str, start: i64 = 0) -> bool:
    """Return whether a pattern, given as codes, and a name match from `start` on.

    Only the last ``*`` is tried again, so the time is at most proportional to the product of both
    lengths.
    """
    size: i64 = len(pattern)
    length: i64 = len(name)
    p: i64 = start
    n: i64 = start
    star: i64 = -1
    retry: i64 = 0
    while n < length:
        code: i64 = pattern[p] if p < size else _END
        if code == _ANY:
            star = p
            p += 1
            retry = n
        elif code == _ONE or code == ord(name[n]):
            p += 1
            n += 1
        elif star >= 0:
            # Try again with one character more for the last star.
            p = star + 1
            retry += 1
            n = retry
        else:
            return False
    while p < size and pattern[p] == _ANY:
        p += 1
    return p == size
