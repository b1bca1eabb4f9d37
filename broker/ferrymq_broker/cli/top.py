"""``ferrymq top``: the busiest nodes of a running broker, live."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import typer

from ferrymq import ManagementClient
from ferrymq.errors import ManagementError
from ferrymq_broker.cli.admin.session import VirtualHost, ask, kind_of
from ferrymq_broker.cli.admin.tables import print_json, text_of, width_of
from ferrymq_broker.cli.connect_options import take_options
from ferrymq_broker.cli.credentials import PasswordFile, TokenFile, User
from ferrymq_broker.cli.options import DEFAULT_URL, Json, Url
from ferrymq_broker.cli.tls_options import Ca, Cert, Key, NoVerify
from ferrymq_broker.config.errors import ConfigError

# The kinds that can be shown, with their columns after the name.
COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "queue": ("in-rate", "out-rate", "messages", "acquired", "bytes", "oldest-age", "consumers"),
    "subscription": ("in-rate", "out-rate", "messages", "acquired", "bytes", "oldest-age", "links"),
    "topic": ("in-rate", "out-rate", "messages", "subscriptions", "oldest-age", "producers"),
    "stream": ("in-rate", "out-rate", "records", "bytes", "oldest-age", "consumers"),
}
# The figures of the broker in the first line.
BROKER: Final = ("version", "connections", "in-rate", "out-rate", "oldest-age", "alarms")
# The rows of a table that does not go to a terminal.
_ROWS: Final = 20
# The rows of a screen that are no nodes.
_HEAD: Final = 3
_HELP: Final = "< > column   r reverse   Tab kind   q quit"
_NAME: Final = "name"
# Text in reverse video, and its end.
_MARKED: Final = "\x1b[7m"
_PLAIN: Final = "\x1b[0m"


class View:
    """The view of the table: the kind, the column to sort by, and the order."""

    def __init__(self, kind: str, column: str, descending: bool) -> None:
        self.kind: str = kind
        self.column: str = column
        self.descending: bool = descending
        self.done: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns, with the name."""
        return (_NAME, *COLUMNS[self.kind])

    @property
    def sort(self) -> str:
        """The argument `sort` of a QUERY."""
        return f"-{self.column}" if self.descending else self.column

    def press(self, key: str) -> bool:
        """Act upon a key; return whether it has a meaning."""
        columns = self.columns
        if key in ("q", "Q", "\x1b", "\x03", "\x04"):
            self.done = True
        elif key in ("<", ",", ">", "."):
            step = 1 if key in (">", ".") else -1
            self.column = columns[(columns.index(self.column) + step) % len(columns)]
            self.descending = self.column != _NAME
        elif key in ("r", "R"):
            self.descending = not self.descending
        elif key == "\t":
            kinds = list(COLUMNS)
            self.kind = kinds[(kinds.index(self.kind) + 1) % len(kinds)]
            if self.column not in self.columns:
                self.column, self.descending = "in-rate", True
        else:
            return False
        return True


def top(
    kind: Annotated[
        str, typer.Argument(help="queues, subscriptions, topics or streams.", metavar="KIND")
    ] = "queues",
    sort: Annotated[
        str,
        typer.Option("--sort", "-s", metavar="A", help="Sort by a column; -A in descending order."),
    ] = "-in-rate",
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", "-n", min=0, metavar="N", help="At most so many rows.", show_default=False
        ),
    ] = None,
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, metavar="SECONDS", help="Time between two.")
    ] = 2.0,
    url: Url = DEFAULT_URL,
    virtual_host: VirtualHost = None,
    user: User = None,
    password_file: PasswordFile = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    no_verify: NoVerify = False,
    as_json: Json = False,
) -> None:
    """Show the busiest nodes of a running broker, live.

    On a terminal, < and > choose the column to sort by, r reverses the order, Tab goes to the next
    kind, q ends. Otherwise, and with --json, it prints one table and ends.
    """
    view = _view_of(kind, sort)
    take_options(user, password_file, token_file, ca, cert, key, no_verify)
    live = sys.stdout.isatty() and not as_json

    async def work(management: ManagementClient) -> None:
        if live:
            await _show_live(management, view, limit, interval)
            return
        broker, rows = await read(management, view, _ROWS if limit is None else limit)
        if as_json:
            print_json({"broker": broker, view.kind: rows})
        else:
            sys.stdout.write("\n".join(screen(view, broker, rows, None)) + "\n")

    try:
        ask(url, virtual_host, work)
    except KeyboardInterrupt:
        if not live:
            raise


def _view_of(kind: str, sort: str) -> View:
    """Return what the arguments say. Raises `ConfigError`."""
    kind = kind_of(kind)
    if kind not in COLUMNS:
        raise ConfigError(f"top shows no {kind!r}; it shows {', '.join(COLUMNS)}")
    column = sort.removeprefix("-")
    if column not in (_NAME, *COLUMNS[kind]):
        known = ", ".join((_NAME, *COLUMNS[kind]))
        raise ConfigError(f"there is no column {column!r}; the columns are {known}")
    return View(kind, column, sort != column)


async def read(
    management: ManagementClient, view: View, limit: int
) -> tuple[dict[str, object], list[dict[str, object]]]:
    """Return the figures of the broker, empty without the right to see them, and the rows."""
    query = management.query(view.kind, list(view.columns), sort=view.sort, limit=limit)
    rows = [row async for row in query]
    try:
        figures = await management.read("broker", "broker")
    except ManagementError:
        return {}, rows
    return {name: figures.get(name) for name in BROKER}, rows


def screen(
    view: View,
    broker: dict[str, object],
    rows: list[dict[str, object]],
    width: int | None,
) -> list[str]:
    """Return the lines to show, cut to a width; None for no terminal."""
    columns = view.columns
    cells = [[_text(column, row.get(column)) for column in columns] for row in rows]
    widths = [
        max(width_of(text) for text in (column, *(row[at] for row in cells)))
        for at, column in enumerate(columns)
    ]
    if width is not None:
        # The name gives way to the figures.
        rest = width - sum(widths[1:]) - 2 * len(widths[1:])
        widths[0] = max(min(widths[0], rest), 8)
    heads = [
        _fit(column, size, column != _NAME) for column, size in zip(columns, widths, strict=True)
    ]
    if width is not None:
        at = columns.index(view.column)
        heads[at] = f"{_MARKED}{heads[at]}{_PLAIN}"
    lines = [_summary(broker), "  ".join(heads).rstrip()]
    lines += [
        "  ".join(
            _fit(text, size, at > 0)
            for at, (text, size) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    if width is not None:
        lines[0] = f"{_fit(lines[0], max(0, width - len(_HELP) - 1), False)} {_HELP}"[:width]
    return lines


def _summary(broker: dict[str, object]) -> str:
    """Return the line about the broker."""
    if not broker:
        return "ferrymq"
    alarms = broker.get("alarms")
    parts = [
        f"ferrymq {broker.get('version')}",
        f"{broker.get('connections')} connections",
        f"in {_text('in-rate', broker.get('in-rate'))}/s",
        f"out {_text('out-rate', broker.get('out-rate'))}/s",
        f"oldest {_text('oldest-age', broker.get('oldest-age'))}",
    ]
    if alarms:
        parts.append(f"ALARM: {text_of(alarms)}")
    return "   ".join(parts)


def _text(column: str, value: object) -> str:
    """Return a value for people: ages with units."""
    if column != "oldest-age" or not isinstance(value, int) or isinstance(value, bool):
        return text_of(value)
    for unit, seconds, next_seconds in (("s", 1, 60), ("m", 60, 3600), ("h", 3600, 86_400)):
        if value < next_seconds:
            return f"{value // seconds}{unit}"
    return f"{value // 86_400}d"


def _fit(text: str, width: int, right: bool) -> str:
    """Return a text in exactly this width."""
    size = width_of(text)
    if size > width:
        while text and width_of(text) > width - 1:
            text = text[:-1]
        text += "…" if width > 0 else ""
        size = width_of(text)
    space = " " * (width - size)
    return space + text if right else text + space


async def _show_live(
    management: ManagementClient, view: View, limit: int | None, interval: float
) -> None:
    """Show the nodes until the user ends it."""
    pressed = asyncio.Event()

    def on_key(key: str) -> None:
        if view.press(key):
            pressed.set()

    with _keys(on_key), _whole_screen():
        while not view.done:
            size = shutil.get_terminal_size()
            count = max(0, size.lines - _HEAD)
            if limit is not None:
                count = min(count, limit)
            broker, rows = await read(management, view, count)
            lines = screen(view, broker, rows, size.columns)
            # Clear the rest of each line, then the rest of the screen.
            sys.stdout.write("\x1b[H" + "".join(f"{line}\x1b[K\r\n" for line in lines) + "\x1b[J")
            sys.stdout.flush()
            pressed.clear()
            try:
                async with asyncio.timeout(interval):
                    await pressed.wait()
            except TimeoutError:
                pass


@contextmanager
def _whole_screen() -> Iterator[None]:
    """Use the other screen of the terminal, without a cursor."""
    sys.stdout.write("\x1b[?1049h\x1b[?25l")
    try:
        yield
    finally:
        sys.stdout.write("\x1b[?25h\x1b[?1049l")
        sys.stdout.flush()


@contextmanager
def _keys(on_key: Callable[[str], object]) -> Iterator[None]:
    """Call `on_key` with each key that is pressed; without a terminal that allows it, never."""
    try:
        import termios
        import tty
    except ModuleNotFoundError:
        # Windows.
        yield
        return
    if not sys.stdin.isatty():
        yield
        return
    place = sys.stdin.fileno()
    before = termios.tcgetattr(place)
    loop = asyncio.get_running_loop()

    def on_input() -> None:
        keys = (os.read(place, 16) or b"q").decode("utf-8", "replace")
        # Arrows choose the column, too.
        for arrow, key in (("\x1b[C", ">"), ("\x1b[D", "<")):
            keys = keys.replace(arrow, key)
        if keys.startswith("\x1b["):
            return
        for one in keys:
            on_key(one)

    tty.setcbreak(place)
    loop.add_reader(place, on_input)
    try:
        yield
    finally:
        loop.remove_reader(place)
        termios.tcsetattr(place, termios.TCSADRAIN, before)
