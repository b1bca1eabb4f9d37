"""``ferrymq admin list|show|create|update|delete|bind|unbind``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ferrymq import ManagementClient, ManagementResponse
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
    url: Url = DEFAULT_URL,
    virtual_host: VirtualHost = None,
    as_json: Json = False,
) -> None:
    """List queues, topics, subscriptions, streams, exchanges, bindings, aliases, connections,
    sessions or links."""
    kind = kind_of(kind)
    wanted = None if columns is None else [name.strip() for name in columns.split(",")]

    async def work(management: ManagementClient) -> list[dict[str, object]]:
        attributes = wanted
        if wanted is None and not as_json:
            attributes = columns_of(kind)
        return [entity async for entity in management.query(kind, attributes)]

    entities = ask(url, virtual_host, work)
    if as_json:
        print_json(entities)
    else:
        print_list(wanted or columns_of(kind), entities)


def show(
    kind: Kind,
    name: Name,
    url: Url = DEFAULT_URL,
    virtual_host: VirtualHost = None,
    as_json: Json = False,
) -> None:
    """Show all attributes of one entity."""

    async def work(management: ManagementClient) -> dict[str, object]:
        return await management.read(kind_of(kind), name)

    _print(ask(url, virtual_host, work), as_json)


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
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    virtual_host: VirtualHost = None,
) -> None:
    """Delete one entity with its messages, or close a connection."""
    kind = kind_of(kind)
    confirm(f"Delete the {kind} {name!r}?", yes)

    async def work(management: ManagementClient) -> ManagementResponse:
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
