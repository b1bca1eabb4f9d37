"""Text that came from outside, made fit for a log.

What clients call themselves must not end a line, move a cursor, colour a terminal, turn the
direction of the writing or fill a disk.
"""

from __future__ import annotations

from typing import Final

# Characters of a value that a log has; of a traceback.
MOST: Final = 500
_MOST_LINES: Final = 20_000


def clean(text: str, most: int = MOST) -> str:
    """The text in one line, with escapes for what cannot be printed, cut to `most` characters."""
    if len(text) > most:
        text = text[:most] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def clean_lines(text: str) -> str:
    """As `clean`, of several lines. All are indented: none can be taken for an entry."""
    cut = text[:_MOST_LINES]
    return "\n".join(f"  {clean(line, _MOST_LINES)}" for line in cut.split("\n"))


def clean_value(value: object) -> object:
    """A value of an entry: numbers and flags as they are, anything else as text that is clean."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list | tuple | set | frozenset):
        return [clean_value(inner) for inner in list(value)[:MOST]]
    return clean(str(value))
