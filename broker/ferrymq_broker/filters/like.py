"""The patterns of LIKE: ``%`` is any text, ``_`` is one character (JMS 2.0 §3.8.1.2)."""

from __future__ import annotations

from typing import Final, final

# The code point that stands for an unescaped underscore in a piece.
_ONE: Final = -1
# Longer texts are not searched for pieces with underscores, because that search is slow.
LONGEST: Final = 1 << 20


@final
class LikePattern:
    """A pattern, with its escape character, or "" for none.

    Matching takes time proportional to the length of the text, whatever the pattern. A pattern with
    underscores between per cent signs, such as ``%a_c%``, matches no text of more than a million
    (2**20) characters. Raises ValueError if the pattern ends with its escape character.
    """

    __slots__ = ("pattern", "escape", "_exact", "_first", "_last", "_middle", "_length", "_slow")

    def __init__(self, pattern: str, escape: str = "") -> None:
        self.pattern: str = pattern
        self.escape: str = escape
        pieces = _cut(pattern, escape)
        # Without a % the pattern is one piece.
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
        """Return whether the whole text matches."""
        size = len(text)
        if self._exact:
            return size == self._length and self._first.stands_at(text, 0)
        end = size - self._last.length
        if size < self._length or not self._first.stands_at(text, 0):
            return False
        if not self._last.stands_at(text, end):
            return False
        # Take the first match of each piece, because it leaves the most text for the next pieces.
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
    """The characters between two per cent signs; `gaps` says whether underscores are among them."""

    __slots__ = ("length", "_literal", "gaps", "_masks", "_anything", "_found")

    def __init__(self, codes: list[int]) -> None:
        self.length = len(codes)
        self.gaps = _ONE in codes
        self._literal = "" if self.gaps else "".join([chr(code) for code in codes])
        # The search with gaps has a set of bits. Bit n says that the text so far ends with the
        # first n+1 characters of the piece. Each character of the text moves a bit to the next
        # place if it matches the next character of the piece.
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
        """Return whether the piece matches at `pos`. The text must be long enough."""
        if not self.gaps:
            return text.startswith(self._literal, pos)
        return self.find(text, pos, pos + self.length) == pos

    def find(self, text: str, pos: int, end: int) -> int:
        """Return the first match of the piece between two positions; −1 if there is none."""
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
    """Return the pieces between the per cent signs, as code points and `_ONE` for an underscore."""
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
