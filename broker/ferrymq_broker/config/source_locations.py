"""Finds the line of a key or a table in a TOML text.

`tomllib` returns values without lines. This module reads the text a second time, after `tomllib`
has accepted it: table headers, keys at the beginnings of lines, and the ends of their values. A key
of an inline table gets the line on which the inline table begins.
"""

from __future__ import annotations

import re
import tomllib
from typing import Final

from ferrymq_broker.config.errors import Location

_PART: Final = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_DOTTED: Final = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER: Final = re.compile(rf"\s*(\[\[?)\s*({_DOTTED})\s*\]")
_KEY: Final = re.compile(rf"\s*({_DOTTED})\s*=")
_PARTS: Final = re.compile(_PART)
# The parts of a value that matter: strings, brackets and comments.
_TOKEN: Final = re.compile(
    r'"""|' r"'''|" r'"(?:[^"\\]|\\.)*"|' r"'[^']*'|[\[\]{}]|#.*|" r"\\.", re.DOTALL
)


class SourceLocations:
    """The lines of all keys and tables of a text that `tomllib` has accepted."""

    def __init__(self, text: str) -> None:
        self._lines: dict[Location, int] = {}
        # The number of tables in each array so far.
        self._arrays: dict[Location, int] = {}
        table: Location = ()
        # The open brackets, and the quotes of a string that continues on the next line.
        depth = 0
        quotes = ""
        for number, line in enumerate(text.split("\n"), 1):
            at = 0
            if not depth and not quotes:
                header = _HEADER.match(line)
                key = None if header is not None else _KEY.match(line)
                if header is not None:
                    table = self._open(_keys(header[2]), header[1] == "[[")
                    for length in range(1, len(table) + 1):
                        self._lines.setdefault(table[:length], number)
                    continue
                if key is None:
                    continue
                names = _keys(key[1])
                for count in range(1, len(names) + 1):
                    self._lines.setdefault((*table, *names[:count]), number)
                at = key.end()
            depth, quotes = _after(line[at:], depth, quotes)

    def _open(self, names: list[str], array: bool) -> Location:
        """Return the location of a header's table, with the indexes of arrays in it."""
        here: Location = ()
        for name in names[:-1]:
            here = (*here, name)
            if here in self._arrays:
                here = (*here, self._arrays[here] - 1)
        here = (*here, names[-1])
        if array:
            count = self._arrays.get(here, 0)
            self._arrays[here] = count + 1
            return (*here, count)
        return here

    def line(self, location: Location) -> int:
        """Return the line of the value at `location`, or of the nearest table around it, or 0."""
        for length in range(len(location), 0, -1):
            found = self._lines.get(location[:length])
            if found is not None:
                return found
        return 0


def _keys(dotted: str) -> list[str]:
    return [_unquoted(part) for part in _PARTS.findall(dotted)]


def _unquoted(part: str) -> str:
    if part[0] == "'":
        return part[1:-1]
    if part[0] == '"':
        return str(tomllib.loads(f"key = {part}")["key"])
    return part


def _after(text: str, depth: int, quotes: str) -> tuple[int, str]:
    """Return the brackets and the string that are still open after this text."""
    at = 0
    while True:
        if quotes:
            end = _end_of_string(text, at, quotes)
            if end < 0:
                return depth, quotes
            at = end
            quotes = ""
        token = _TOKEN.search(text, at)
        if token is None or token[0].startswith("#"):
            return depth, ""
        at = token.end()
        if token[0] in ('"""', "'''"):
            quotes = token[0]
        elif token[0] in "[{":
            depth += 1
        elif token[0] in "]}":
            depth -= 1


def _end_of_string(text: str, at: int, quotes: str) -> int:
    """Return where a string of several lines ends in this text; −1 if it continues."""
    while at < len(text):
        if text[at] == "\\" and quotes == '"""':
            at += 2
        elif text.startswith(quotes, at):
            at += 3
            # Up to two quotes more belong to the string.
            while at < len(text) and text[at] == quotes[0]:
                at += 1
            return at
        else:
            at += 1
    return -1
