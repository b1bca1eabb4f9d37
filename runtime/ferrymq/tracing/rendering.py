"""Values as text for a terminal, and as JSON: shortened, and without terminal control
characters."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from enum import Enum
from typing import Final

from ferrymq.tracing.redaction import Pairs, Redacted, Shown
from ferrymq_codec.scalars import Symbol, Timestamp

# Limits: characters of a text, entries of a list or map, and levels of nesting.
_TEXT: Final = 80
_ENTRIES: Final = 24
_DEEPEST: Final = 8


def text(value: object, full: bool = False, depth: int = 0) -> str:
    """Return a redacted value in one line. With `full`, only deep nesting is cut."""
    if value is None:
        return "null"
    if isinstance(value, Redacted):
        return str(value)
    if isinstance(value, Shown):
        if depth > _DEEPEST:
            return "…"
        inside = [f"{safe(name)}={text(item, full, depth + 1)}" for name, item in
                  value.fields.items()]  # fmt: skip
        return f"{safe(value.name)}({_few(inside, full)})"
    if isinstance(value, Pairs):
        if depth > _DEEPEST:
            return "…"
        inside = [f"{text(key, full, depth + 1)}: {text(item, full, depth + 1)}" for key, item in
                  value[: None if full else _ENTRIES + 1]]  # fmt: skip
        return "{" + _few(inside, full, len(value)) + "}"
    if isinstance(value, list):
        if depth > _DEEPEST:
            return "…"
        items = value[: None if full else _ENTRIES + 1]
        return "[" + _few([text(i, full, depth + 1) for i in items], full, len(value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return value.name.lower().replace("_", "-")
    if isinstance(value, Symbol):
        return ":" + safe(_cut(str(value), full))
    if isinstance(value, str):
        return repr(_cut(str(value), full)) + _rest(len(value), full)
    if isinstance(value, bytes):
        return _binary(value, full)
    if isinstance(value, Timestamp):
        return _moment(value)
    return safe(str(value))


def plain(value: object, full: bool = False, depth: int = 0) -> object:
    """Return a redacted value in the form of JSON."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Redacted):
        return str(value)
    if depth > _DEEPEST:
        return "…"
    if isinstance(value, Shown):
        fields = {name: plain(item, full, depth + 1) for name, item in value.fields.items()}
        return {"type": value.name, **fields}
    if isinstance(value, Pairs):
        shown = value[: None if full else _ENTRIES]
        return {text(k).strip("'"): plain(item, full, depth + 1) for k, item in shown}
    if isinstance(value, list):
        return [plain(item, full, depth + 1) for item in value[: None if full else _ENTRIES]]
    if isinstance(value, Enum):
        return value.name.lower().replace("_", "-")
    if isinstance(value, str):
        return _cut(str(value), full) + _rest(len(value), full)
    if isinstance(value, bytes):
        return _binary(value, full)
    if isinstance(value, Timestamp):
        return _moment(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    return str(value)


def safe(words: str) -> str:
    """Return a text without the characters that control a terminal."""
    return words if words.isprintable() else repr(words)[1:-1]


def _cut(words: str, full: bool) -> str:
    return words if full or len(words) <= _TEXT else words[:_TEXT]


def _rest(length: int, full: bool) -> str:
    return "" if full or length <= _TEXT else f"… ({length} characters)"


def _few(inside: list[str], full: bool, count: int | None = None) -> str:
    count = len(inside) if count is None else count
    if full or count <= _ENTRIES:
        return ", ".join(inside)
    return ", ".join(inside[:_ENTRIES]) + f", … ({count} in all)"


def _binary(value: bytes, full: bool) -> str:
    piece = value if full else value[: _TEXT // 2]
    words = piece.decode("latin-1")
    if words.isascii() and words.isprintable():
        said = "b" + repr(words)
    else:
        said = "0x" + piece.hex()
    return said if len(piece) == len(value) else f"{said}… ({len(value)} bytes)"


def _moment(value: Timestamp) -> str:
    try:
        moment = datetime.fromtimestamp(int(value) / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return str(int(value))
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
