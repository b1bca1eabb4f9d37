"""Printing of entities as tables and as JSON."""

from __future__ import annotations

import json
import shutil
import sys
import unicodedata
from typing import TYPE_CHECKING, Final

from ferrymq_broker.cli.rendering import plain

if TYPE_CHECKING:
    from rich.table import Table

# The default columns of lists, after the name.
COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "queue": ("available", "acquired", "scheduled", "bytes", "consumers", "producers"),
    "topic": ("subscriptions", "producers", "messages", "published"),
    "subscription": ("available", "acquired", "links", "durable", "shared", "filter"),
    "stream": ("partitions", "records", "bytes", "consumers", "producers"),
    "exchange": ("routing", "bindings", "published", "unroutable", "alternate"),
    "binding": ("exchange", "key", "destination", "arguments"),
    "alias": ("address",),
    "fence": ("group", "member", "target", "sequence", "rows", "repeated", "digest"),
    "connection": (
        "peer",
        "container-id",
        "user",
        "product",
        "links",
        "unsettled",
        "received-rate",
        "sent-rate",
        "since",
    ),
    "session": ("connection", "channel", "links", "unsettled"),
    "link": ("user", "role", "address", "unsettled", "credit", "messages", "rate"),
    "user": ("groups", "origin"),
    "rule": ("who", "may", "may-not", "where", "origin"),
    "virtual-host": ("nodes", "connections", "max-nodes"),
    "broker": ("version", "connections", "links", "held-bytes", "alarms"),
    "store": ("bytes", "last-batch", "alarm", "path"),
    "replication": ("role", "leader", "term", "lag-batches", "journal-bytes", "members"),
}
# Kinds whose names are not unique, and that are listed by identity.
_BY_IDENTITY: Final = ("session", "link")
# Kinds whose name consists of several attributes, which are columns of their own.
_BY_COLUMNS: Final = ("fence",)
# The columns between two columns of a table.
_GAP: Final = 3
# The most rows of a table whose long texts are folded at the width of the terminal.
_FOLDED: Final = 1000
# The width of output for programs, so that nothing is cut off.
_ENDLESS: Final = 10_000


def columns_of(kind: str) -> list[str]:
    """Return the default columns of a list of this kind."""
    columns = list(COLUMNS.get(kind, ("type",)))
    if kind in _BY_COLUMNS:
        return columns
    return ["identity" if kind in _BY_IDENTITY else "name", *columns]


def print_json(value: object) -> None:
    """Print one JSON value. A list has an entity on each line."""
    if isinstance(value, list):
        lines = [json.dumps(plain(item), ensure_ascii=False) for item in value]
        sys.stdout.write("[" + ",\n ".join(lines) + "]\n")
    else:
        sys.stdout.write(json.dumps(plain(value), ensure_ascii=False) + "\n")


def print_list(columns: list[str], rows: list[dict[str, object]]) -> None:
    """Print a table with a row for each entity."""
    cells = [[text_of(row.get(column)) for column in columns] for row in rows]
    widths = [
        max(map(width_of, (column, *(row[at] for row in cells))))
        for at, column in enumerate(columns)
    ]
    terminal = sys.stdout.isatty()
    width = sum(widths) + _GAP * (len(widths) - 1)
    if terminal and width > shutil.get_terminal_size().columns and len(rows) <= _FOLDED:
        _print_folded(columns, rows)
        return
    numbers = [any(_is_number(row.get(column)) for row in rows) for column in columns]
    head = _line(columns, widths, numbers)
    lines = [f"\x1b[1m{head}\x1b[0m" if terminal else head, "─" * width]
    lines += [_line(row, widths, numbers) for row in cells]
    sys.stdout.write("\n".join(lines) + "\n")


def _line(row: list[str], widths: list[int], numbers: list[bool]) -> str:
    """Return a row of a table: numbers at the right of their column, texts at the left."""
    cells = []
    for text, width, number in zip(row, widths, numbers, strict=True):
        if not text.isascii():
            # `width` counts columns of the terminal.
            width += len(text) - width_of(text)
        cells.append(text.rjust(width) if number else text.ljust(width))
    return (" " * _GAP).join(cells).rstrip()


def width_of(text: str) -> int:
    """Return the number of columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )


def _print_folded(columns: list[str], rows: list[dict[str, object]]) -> None:
    """Print a table that is wider than the terminal: long texts take several lines."""
    # Imported where it is needed, because it takes longer than most requests.
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        numbers = any(_is_number(row.get(column)) for row in rows)
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(text_of(row.get(column))) for column in columns))
    _print(table)


def print_entity(attributes: dict[str, object]) -> None:
    """Print an entity with an attribute on each line. Entries of maps have dotted names."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in _flat("", attributes):
        table.add_row(Text(key), Text(text_of(value)))
    _print(table)


def text_of(value: object) -> str:
    """Return the text of a value in a table."""
    # First those that long tables have.
    kind = type(value)
    if kind is int:
        return str(value)
    if kind is str and value != "":
        return _printable(str(value))
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key}={text_of(inner)}" for key, inner in value.items()) or "-"
    if isinstance(value, list):
        return ", ".join(text_of(inner) for inner in value) or "-"
    return _printable(str(plain(value))) if value != "" else "-"


def _printable(text: str) -> str:
    # Names come from clients, and must not move the cursor of the terminal.
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _flat(before: str, attributes: dict[str, object]) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for key, value in attributes.items():
        if isinstance(value, dict) and value:
            found += _flat(f"{before}{key}.", value)
        else:
            found.append((f"{before}{key}", value))
    return found


def _print(table: Table) -> None:
    from rich.console import Console

    terminal = sys.stdout.isatty()
    Console(width=None if terminal else _ENDLESS, soft_wrap=not terminal).print(table)
