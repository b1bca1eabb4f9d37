"""Regular expressions of permissions, as patterns with wildcards.

A pattern has ``*`` for any characters or none, and ``?`` for one character. An expression that is
made of characters, ``.``, ``.*``, ``.+``, alternatives and groups has patterns that match the same
names; others have none.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

# The most patterns that one expression may need.
_MOST: Final = 100
_LITERAL_ESCAPES: Final = frozenset(".-_/:*+?^$()[]{}|\\ #&@!%~,;=<>'\"`")
# What a piece of a pattern is: any text, one character, the beginning and the end of a name.
_ANY: Final = ("*", False)
_ONE: Final = ("?", False)
_BEGIN: Final = ("^", False)
_END: Final = ("$", False)

# A character (with True), or one of the four above.
_Piece = tuple[str, bool]
NamePattern = tuple[_Piece, ...]


class NoPatternError(ValueError):
    """An exception: a regular expression has no equal patterns. The message says why."""


def name_patterns(expression: str) -> list[NamePattern]:
    """Return the patterns that together match the names in which a part matches the expression;
    none for an expression that matches no name. Raises `NoPatternError`."""
    if expression in ("", "^$"):
        # RabbitMQ's words for no permission.
        return []
    reader = _Reader(expression)
    found = reader.alternatives()
    if reader.at < len(expression):
        raise NoPatternError(f"{expression!r}: there is a ) too much")
    patterns = [_whole(pieces, expression) for pieces in found]
    return list(dict.fromkeys(patterns))


def wildcard_text(pattern: NamePattern, quoted: bool = False) -> str:
    """Return a pattern as text for an access rule; with `quoted`, characters are percent-encoded as
    in the address of an exchange. Raises `NoPatternError` for a name with a wildcard in it."""
    text = ""
    for char, literal in pattern:
        if literal and quoted:
            text += quote(char, safe="")
        elif literal and char in "*?{}":
            raise NoPatternError(f"a rule cannot have the character {char!r} in a name")
        else:
            text += char
    return text


class _Reader:
    """A reader of an expression, from `at` on."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def alternatives(self) -> list[NamePattern]:
        found = self._sequence()
        while self._peek() == "|":
            self.at += 1
            found = found + self._sequence()
            self._expect_few(found)
        return found

    def _sequence(self) -> list[NamePattern]:
        sequences: list[NamePattern] = [()]
        while self.at < len(self.text) and self._peek() not in "|)":
            choices = self._piece()
            sequences = [before + piece for before in sequences for piece in choices]
            self._expect_few(sequences)
        return sequences

    def _piece(self) -> list[NamePattern]:
        char = self.text[self.at]
        self.at += 1
        if char == "(":
            if self._peek() == "?":
                if not self.text.startswith("?:", self.at):
                    raise self._error("(?")
                self.at += 2
            inner = self.alternatives()
            if self._peek() != ")":
                raise NoPatternError(f"{self.text!r}: a ) is missing")
            self.at += 1
            return self._repeated(inner, ")")
        if char == ".":
            return self._dot()
        if char in "^$":
            return [(_BEGIN if char == "^" else _END,)]
        if char == "\\":
            escaped = self._peek()
            self.at += 1
            if escaped not in _LITERAL_ESCAPES:
                raise self._error(f"\\{escaped}")
            char = escaped
        elif char in "[{*+?":
            raise self._error(char)
        return self._repeated([((char, True),)], char)

    def _dot(self) -> list[NamePattern]:
        following = self._peek()
        if following and following in "*+":
            self.at += 1
            if self._peek() == "?":
                self.at += 1
            return [(_ANY,)] if following == "*" else [(_ONE, _ANY)]
        if following == "?":
            self.at += 1
            return [(), (_ONE,)]
        if following == "{":
            raise self._error("{")
        return [(_ONE,)]

    def _repeated(self, choices: list[NamePattern], what: str) -> list[NamePattern]:
        following = self._peek()
        if following == "?":
            self.at += 1
            return [(), *choices]
        if following and following in "*+{":
            raise self._error(f"{what}{following}")
        return choices

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _expect_few(self, found: list[NamePattern]) -> None:
        if len(found) > _MOST:
            raise NoPatternError(f"{self.text[:60]!r} needs more than {_MOST} patterns")

    def _error(self, what: str) -> NoPatternError:
        return NoPatternError(f"{self.text!r}: patterns of access rules have no {what!r}")


def _whole(pieces: NamePattern, expression: str) -> NamePattern:
    """Return the pattern for a whole name: what is not anchored may have other text around it."""
    begins = ends = False
    while pieces and pieces[0] == _BEGIN:
        begins, pieces = True, pieces[1:]
    while pieces and pieces[-1] == _END:
        ends, pieces = True, pieces[:-1]
    if _BEGIN in pieces or _END in pieces:
        raise NoPatternError(f"{expression!r}: ^ and $ are only possible at its ends")
    whole = (() if begins else (_ANY,)) + pieces + (() if ends else (_ANY,))
    # Two wildcards for any text in a row are one.
    return tuple(
        piece for at, piece in enumerate(whole) if piece != _ANY or at == 0 or whole[at - 1] != _ANY
    )
