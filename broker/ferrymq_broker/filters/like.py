"""The patterns of LIKE: ``%`` is any text, ``_`` is one character (JMS 2.0 §3.8.1.2)."""

from __future__ import annotations

from typing import Final, final

# What stands for an unescaped underscore among the code points of a pattern.
_ONE: Final = -1
# Longer texts are not searched for pieces with underscores, which goes character by character.
LONGEST: Final = 1 << 20


@final
class LikePattern:
    """A pattern, with the character that takes the meaning of the one behind it, or "" for none.

    Matching takes time proportional to the length of the text, whatever the pattern. What would
    have to be searched for characters with underscores among them, ``%a_c%``, matches no text of
    more than a million (2**20) characters. Raises ValueError if the pattern ends with its escape
    character.
    """

    __slots__ = ("pattern", "escape", "_exact", "_first", "_last", "_middle", "_length", "_slow")

    def __init__(self, pattern: str, escape: str = "") -> None:
        self.pattern = pattern
        self.escape = escape
        pieces = _cut(pattern, escape)
        # Without a % the whole text is the one piece.
        self._exact = len(pieces) == 1
        self._first = _Piece(pieces[0])
        self._last = _Piece(pieces[-1])
        self._middle = [_Piece(piece) for piece in pieces[1:-1] if piece]
        length = 0
        for piece in pieces:
            length += len(piece)
        self._length = length
        self._slow = False
        for middle in self._middle:
            if middle.gaps:
                self._slow = True

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        size = len(text)
        if self._exact:
            return size == self._length and self._first.stands_at(text, 0)
        end = size - self._last.length
        if size < self._length or not self._first.stands_at(text, 0):
            return False
        if not self._last.stands_at(text, end):
            return False
        # The leftmost place of each piece leaves most room for those that follow.
        if self._slow and size > LONGEST:
            return False
        pos = self._first.length
        for piece in self._middle:
            pos = piece.find(text, pos, end)
            if pos < 0:
                return False
            pos += piece.length
        return True


@final
class _Piece:
    """Characters and underscores between two per cent signs; `gaps` is whether there are any _."""

    __slots__ = ("length", "_literal", "gaps", "_masks", "_anything", "_found")

    def __init__(self, codes: list[int]) -> None:
        self.length = len(codes)
        self.gaps = _ONE in codes
        self._literal = "" if self.gaps else "".join([chr(code) for code in codes])
        # For a search with gaps: a set of bits in which bit n says that the text so far ends with
        # the first n+1 characters of the piece. A character of the text moves each bit one on if
        # the next character of the piece allows it.
        masks: dict[str, int] = {}
        anything = 0
        for at, code in enumerate(codes):
            if code == _ONE:
                anything |= 1 << at
            else:
                char = chr(code)
                masks[char] = masks.get(char, 0) | (1 << at)
        for char in masks:
            masks[char] |= anything
        self._masks = masks
        self._anything = anything
        self._found = 1 << (self.length - 1) if codes else 0

    def stands_at(self, text: str, pos: int) -> bool:
        """Whether the text goes on with the piece at `pos`; there is enough text left."""
        if not self.gaps:
            return text.startswith(self._literal, pos)
        return self.find(text, pos, pos + self.length) == pos

    def find(self, text: str, pos: int, end: int) -> int:
        """Where the piece first stands in the text between the two positions, −1 for nowhere."""
        if not self.gaps:
            return text.find(self._literal, pos, end)
        masks = self._masks
        anything = self._anything
        found = self._found
        states = 0
        while pos < end:
            states = ((states << 1) | 1) & masks.get(text[pos], anything)
            pos += 1
            if states & found:
                return pos - self.length
        return -1


def _cut(pattern: str, escape: str) -> list[list[int]]:
    """The pieces between the per cent signs, as code points and `_ONE` for an underscore."""
    pieces: list[list[int]] = [[]]
    literal = False
    for char in pattern:
        if literal:
            pieces[-1].append(ord(char))
            literal = False
        elif char == escape:
            literal = True
        elif char == "%":
            pieces.append([])
        elif char == "_":
            pieces[-1].append(_ONE)
        else:
            pieces[-1].append(ord(char))
    if literal:
        raise ValueError("the pattern ends with its escape character")
    return pieces
