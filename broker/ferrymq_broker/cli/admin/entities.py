"""``ferrymq admin list|show|create|update|delete|bind|unbind``."""

from __future__ import annotations

import asyncio
import sys
from http import HTTPStatus
from typing import Annotated, Final

import typer

from ferrymq import ManagementClient, ManagementResponse
from ferrymq.errors import ManagementError
from ferrymq_broker.cli.admin.session import (
    Kind,
    VirtualHost,
    Yes,
    ask,
    confirm,
    kind_of,
    values_of,
)
from ferrymq_broker.cli.admin.tables import columns_of, print_entity, print_json, print_list
from ferrymq_broker.cli.options import DEFAULT_URL, Json, Url
from ferrymq_broker.cli.user.options import ask_password
from ferrymq_broker.config.errors import ConfigError

# The kinds of nodes that have links.
NODES: Final = ("queue", "subscription", "stream", "topic", "exchange")

Name = Annotated[str, typer.Argument(help="The name or identity.", show_default=False)]
Pairs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE", help="Settings, as in the configuration.", show_default=False
    ),
]


def list_entities(
    kind: Kind,
    columns: Annotated[
        str | None, typer.Option("--columns", "-c", metavar="A,B,C", help="Attributes to show.")
    ] = None,
    of: Annotated[
        str | None,
        typer.Option(
            "--of",
            metavar="ADDRESS",
            help="Only the links of this node, those that hold the most messages first.",
        ),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(
            "--sort", "-s", metavar="A", help="Sort by an attribute; -A in descending order."
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=0, metavar="N", help="Show at most so many."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show them again and again until Ctrl-C.")
    ] = False,
    interval: Annotated[
        float,
        typer.Option("--interval", min=0.1, metavar="SECONDS", help="Time between two, with -w."),
    ] = 2.0,
    url: Url = DEFAULT_URL,
    virtual_host: VirtualHost = None,
    as_json: Json = False,
) -> None:
    """List queues, topics, subscriptions, streams, exchanges, bindings, aliases, connections,
    sessions or links."""
    kind = kind_of(kind)
    if of is not None and kind != "link":
        raise typer.BadParameter("only links are listed by their node", param_hint="--of")
    wanted = None if columns is None else [name.strip() for name in columns.split(",")]
    attributes = columns_of(kind) if wanted is None and not as_json else wanted

    def print_all(entities: list[dict[str, object]]) -> None:
        if as_json:
            print_json(entities)
        else:
            print_list(attributes or [], entities)

    async def work(management: ManagementClient) -> None:
        named = [*(wanted or ()), *([] if sort is None else [sort.removeprefix("-")])]
        if named:
            await _expect_attributes(management, kind, named)
        while True:
            if of is None:
                query = management.query(kind, attributes, sort=sort, limit=limit)
                entities = [entity async for entity in query]
            else:
                entities = (await links_of(management, of))[0]
            if watch and sys.stdout.isatty():
                # Clear the terminal.
                sys.stdout.write("\x1b[H\x1b[J")
            print_all(entities)
            sys.stdout.flush()
            if not watch:
                return
            await asyncio.sleep(interval)

    try:
        ask(url, virtual_host, work)
    except KeyboardInterrupt:
        if not watch:
            raise


async def _expect_attributes(management: ManagementClient, kind: str, named: list[str]) -> None:
    """Raise `ConfigError` if entities of the kind have no attribute of one of these names."""
    known = {"name": None, "identity": None, "type": None}
    response = await management.request("GET-ATTRIBUTES", properties={"entityType": kind})
    for names in response.map().values():
        if isinstance(names, list):
            known.update(dict.fromkeys(names))
    for name in named:
        if name not in known:
            raise ConfigError(f"there is no column {name!r}; the columns are {', '.join(known)}")


def show(
    kind: Kind,
    name: Name,
    url: Url = DEFAULT_URL,
    virtual_host: VirtualHost = None,
    as_json: Json = False,
) -> None:
    """Show all attributes of one entity, and the links of a node."""
    kind = kind_of(kind)

    async def work(
        management: ManagementClient,
    ) -> tuple[dict[str, object], list[dict[str, object]], int]:
        entity = await management.read(kind, name)
        if as_json or kind not in NODES:
            return entity, [], 0
        try:
            return entity, *await links_of(management, name, kind)
        except ManagementError:
            # Without the right to manage the node, only the entity is shown.
            return entity, [], 0

    entity, links, elsewhere = ask(url, virtual_host, work)
    _print(entity, as_json)
    if links:
        typer.echo()
        print_list(columns_of("link"), links)
    if elsewhere:
        typer.echo(f"{elsewhere} more messages are held without a link")


async def links_of(
    management: ManagementClient, address: str, kind: str | None = None
) -> tuple[list[dict[str, object]], int]:
    """Return the links of the node at an address, which is of this kind or of any, and how many
    messages are held by no link. Raises `ManagementError`."""
    for each in NODES if kind is None else (kind,):
        try:
            response = await management.request("LIST-LINKS", each, address, {})
        except ManagementError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            continue
        links, elsewhere = response.map().get("links"), response.map().get("elsewhere")
        return (
            list(links) if isinstance(links, list) else [],
            elsewhere if isinstance(elsewhere, int) else 0,
        )
    raise ManagementError(HTTPStatus.NOT_FOUND, f"there is no node {address!r}")


def create(
    kind: Kind,
    name: Name,
    pairs: Pairs = None,
    url: Url = DEFAULT_URL,
    virtual_host: VirtualHost = None,
    as_json: Json = False,
) -> None:
    """Make a queue, topic, subscription (TOPIC::NAME), stream, exchange, alias, user or rule.

    Does nothing if it exists with the same settings, and fails if it exists with other settings.
    The password of a user is asked for, or read from standard input.
    """
    attributes = _with_password(kind_of(kind), name, values_of(pairs), always=True)

    async def work(management: ManagementClient) -> dict[str, object]:
        return await management.create(kind_of(kind), name, attributes)

    made = ask(url, virtual_host, work)
    if as_json:
        print_json(made)
    else:
        typer.echo(f"{kind_of(kind)} {made.get('name')} exists")


def update(
    kind: Kind,
    name: Name,
    pairs: Pairs = None,
    url: Url = DEFAULT_URL,
    virtual_host: VirtualHost = None,
    as_json: Json = False,
) -> None:
    """Change settings of one entity; the other settings stay as they are. For a user, password=-
    asks for the new password, or reads it from standard input."""
    attributes = _with_password(kind_of(kind), name, values_of(pairs), always=False)

    async def work(management: ManagementClient) -> ManagementResponse:
        return await management.request("UPDATE", kind_of(kind), name, attributes)

    response = ask(url, virtual_host, work)
    _print(response.map(), as_json)
    _print_rest(response)


def delete(
    kind: Kind,
    name: Name,
    if_empty: Annotated[
        bool, typer.Option("--if-empty", help="Fail if there are messages.")
    ] = False,
    if_unused: Annotated[bool, typer.Option("--if-unused", help="Fail if links use it.")] = False,
    reason: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="What the client of a connection or a link is told."),
    ] = None,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    virtual_host: VirtualHost = None,
) -> None:
    """Delete one entity with its messages, close a connection, or detach a link."""
    kind = kind_of(kind)
    confirm(f"Delete the {kind} {name!r}?", yes)

    async def work(management: ManagementClient) -> ManagementResponse:
        if reason is not None:
            return await management.request("DELETE", kind, name, {"reason": reason})
        return await management.delete(kind, name, if_empty=if_empty, if_unused=if_unused)

    response = ask(url, virtual_host, work)
    typer.echo(f"{kind} {name} is deleted")
    _print_rest(response)


Exchange = Annotated[str, typer.Argument(help="The exchange.", show_default=False)]
Destination = Annotated[
    str, typer.Argument(help="The node that gets messages.", show_default=False)
]
Key = Annotated[str, typer.Option("--key", "-k", help="The binding key.")]
Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE", help="Arguments of a headers exchange.", show_default=False
    ),
]


def bind(
    exchange: Exchange,
    destination: Destination,
    arguments: Arguments = None,
    key: Key = "",
    url: Url = DEFAULT_URL,
    virtual_host: VirtualHost = None,
    as_json: Json = False,
) -> None:
    """Bind a queue, topic, stream or exchange to an exchange."""
    body = _binding(exchange, destination, key, arguments)

    async def work(management: ManagementClient) -> dict[str, object]:
        return (await management.request("CREATE", "binding", None, body)).map()

    made = ask(url, virtual_host, work)
    if as_json:
        print_json(made)
    else:
        typer.echo(f"binding {made.get('name')} exists")


def unbind(
    exchange: Exchange,
    destination: Destination,
    arguments: Arguments = None,
    key: Key = "",
    url: Url = DEFAULT_URL,
    virtual_host: VirtualHost = None,
) -> None:
    """Remove a binding."""
    body = _binding(exchange, destination, key, arguments)

    async def work(management: ManagementClient) -> None:
        await management.request("DELETE", "binding", None, body)

    ask(url, virtual_host, work)
    typer.echo(f"{destination} is not bound to {exchange} any more")


def _binding(
    exchange: str, destination: str, key: str, arguments: list[str] | None
) -> dict[str, object]:
    return {
        "exchange": exchange,
        "destination": destination,
        "key": key,
        "arguments": values_of(arguments),
    }


def _with_password(
    kind: str, name: str, attributes: dict[str, object], always: bool
) -> dict[str, object]:
    """Return the attributes of a user with a password that was asked for. On the command line
    everybody on the machine could read it."""
    if kind == "user" and attributes.get("password", "-" if always else None) == "-":
        return {**attributes, "password": ask_password(name, not sys.stdin.isatty())}
    return attributes


def _print_rest(response: ManagementResponse) -> None:
    """Print the additional text of a response on standard error."""
    _, more, rest = response.description.partition("; ")
    if more:
        typer.echo(f"ferrymq: {rest}", err=True)


def _print(attributes: dict[str, object], as_json: bool) -> None:
    if as_json:
        print_json(attributes)
    else:
        print_entity(attributes)
