"""Makes text from clients safe to log.

Names that clients choose must not end a line, move a cursor, colour a terminal, change the
direction of writing or fill a disk.
"""

from __future__ import annotations

from typing import Final

# The highest number of characters that are logged of a value, and of a traceback.
MOST: Final = 500
_MOST_LINES: Final = 20_000


def clean(text: str, most: int = MOST) -> str:
    """Return the text in one line, with unprintable characters escaped, cut to `most`
    characters."""
    if len(text) > most:
        text = text[:most] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def clean_lines(text: str) -> str:
    """Clean a text of several lines, and indent each line, so that no line looks like an entry."""
    cut = text[:_MOST_LINES]
    return "\n".join(f"  {clean(line, _MOST_LINES)}" for line in cut.split("\n"))


def clean_value(value: object) -> object:
    """Return numbers and flags as they are, any other value as clean text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list | tuple | set | frozenset):
        return [clean_value(inner) for inner in list(value)[:MOST]]
    return clean(str(value))
