"""The connection of an admin command: connect, send requests, disconnect."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Annotated, Final, TypeVar

import typer

import ferrymq
from ferrymq import ManagementClient
from ferrymq.engine.pairing import LINK_PAIR
from ferrymq.errors import ManagementError
from ferrymq.url import parse_urls
from ferrymq_broker.cli.connect_options import connecting_of_command
from ferrymq_broker.config.errors import ConfigError

T = TypeVar("T")

VirtualHost = Annotated[
    str | None,
    typer.Option(
        "--virtual-host", envvar="FERRYMQ_VIRTUAL_HOST", metavar="NAME", help="The virtual host."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Kind = Annotated[str, typer.Argument(help="queue, topic, stream, connection …", metavar="KIND")]

# Plural forms of kinds, which are accepted too.
_PLURALS: Final = {
    "queues": "queue",
    "topics": "topic",
    "subscriptions": "subscription",
    "streams": "stream",
    "exchanges": "exchange",
    "bindings": "binding",
    "aliases": "alias",
    "connections": "connection",
    "sessions": "session",
    "links": "link",
    "fences": "fence",
    "users": "user",
    "rules": "rule",
    "virtual-hosts": "virtual-host",
    "brokers": "broker",
}


def kind_of(word: str) -> str:
    """Return the type of entity for a word. The broker refuses unknown types."""
    return _PLURALS.get(word, word)


def ask(url: str, virtual_host: str | None, work: Callable[[ManagementClient], Awaitable[T]]) -> T:
    """Do `work` over a new connection."""
    url, arguments = connecting_of_command().arguments(url)
    arguments["hostname"] = None if virtual_host is None else f"vhost:{virtual_host}"
    arguments["desired_capabilities"] = [LINK_PAIR]

    async def run() -> T:
        async with (
            ferrymq.connect(url, **arguments) as connection,
            connection.management() as management,
        ):
            return await work(management)

    try:
        return asyncio.run(run())
    except ManagementError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        who = parse_urls(url)[0].username
        name = "without a user name" if who is None else repr(who)
        raise ManagementError(error.status, f"403: {error.description}, {name}") from None


def confirm(question: str, yes: bool) -> None:
    """Ask for confirmation at a terminal. Raises `ConfigError` without a terminal or `yes`."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} There is no terminal to answer at: use --yes")
    if not typer.confirm(question):
        raise typer.Exit(1)


def values_of(pairs: list[str] | None) -> dict[str, object]:
    """Return ``key=value`` words as attributes; ``key.part=value`` sets an entry of a map."""
    found: dict[str, object] = {}
    for pair in pairs or []:
        key, given, text = pair.partition("=")
        if not given or not key:
            raise typer.BadParameter(
                f"{pair!r} must have the form KEY=VALUE", param_hint="KEY=VALUE"
            )
        table = found
        *parts, last = key.split(".")
        for part in parts:
            inner = table.setdefault(part, {})
            if not isinstance(inner, dict):
                raise typer.BadParameter(f"{part!r} has a value already", param_hint=pair)
            table = inner
        table[last] = value_of(text)
    return found


def value_of(text: str) -> object:
    """Return a value as an integer, a boolean, or text. In double quotes it is always text."""
    if text in ("true", "false"):
        return text == "true"
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return text[1:-1]
    try:
        return int(text)
    except ValueError:
        return text
