"""Printing of entities as tables and as JSON."""

from __future__ import annotations

import json
import sys
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ferrymq_broker.cli.rendering import plain

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
    "connection": ("peer", "container-id", "user", "sessions", "links"),
    "session": ("connection", "channel", "links"),
    "link": ("connection", "role", "address", "credit", "delivery-count"),
    "user": ("groups", "origin"),
    "rule": ("who", "may", "may-not", "where", "origin"),
    "virtual-host": ("nodes", "connections", "max-nodes"),
    "broker": ("version", "connections", "links", "held-bytes", "alarms"),
    "store": ("bytes", "last-batch", "alarm", "path"),
}
# Kinds whose names are not unique, and that are listed by identity.
_BY_IDENTITY: Final = ("session", "link")
# Kinds whose name consists of several attributes, which are columns of their own.
_BY_COLUMNS: Final = ("fence",)
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
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        numbers = any(_is_number(row.get(column)) for row in rows)
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(text_of(row.get(column))) for column in columns))
    _print(table)


def print_entity(attributes: dict[str, object]) -> None:
    """Print an entity with an attribute on each line. Entries of maps have dotted names."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in _flat("", attributes):
        table.add_row(Text(key), Text(text_of(value)))
    _print(table)


def text_of(value: object) -> str:
    """Return the text of a value in a table."""
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
    return isinstance(value, int) and not isinstance(value, bool)


def _flat(before: str, attributes: dict[str, object]) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for key, value in attributes.items():
        if isinstance(value, dict) and value:
            found += _flat(f"{before}{key}.", value)
        else:
            found.append((f"{before}{key}", value))
    return found


def _print(table: Table) -> None:
    terminal = sys.stdout.isatty()
    Console(width=None if terminal else _ENDLESS, soft_wrap=not terminal).print(table)
