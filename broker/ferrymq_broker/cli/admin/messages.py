"""``ferrymq admin purge|move|requeue|remove|peek``."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Annotated, Final

import typer

from ferrymq import ManagementClient, Message, MoveResult, PeekedMessage
from ferrymq.errors import DecodeError, ManagementError
from ferrymq_broker.cli.admin.session import VirtualHost, Yes, ask, confirm
from ferrymq_broker.cli.admin.tables import print_json, text_of
from ferrymq_broker.cli.options import DEFAULT_URL, Json, Url
from ferrymq_broker.cli.rendering import as_json as message_json
from ferrymq_broker.cli.rendering import as_text as message_text
from ferrymq_broker.cli.rendering import plain

# The kinds of entities with messages.
_HOLDERS: Final = ("queue", "subscription", "stream")

Address = Annotated[
    str, typer.Argument(help="A queue, subscription or stream.", show_default=False)
]


async def _kind_at(management: ManagementClient, address: str) -> str:
    """Return the kind of the entity at an address, which must be one with messages."""
    for kind in _HOLDERS:
        try:
            await management.read(kind, address)
        except ManagementError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
        else:
            return kind
    raise ManagementError(
        HTTPStatus.NOT_FOUND, f"there is no queue, subscription or stream {address!r}"
    )


def purge(
    address: Address,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    virtual_host: VirtualHost = None,
    as_json: Json = False,
) -> None:
    """Drop the messages that no consumer holds."""
    confirm(f"Drop the messages in {address!r}?", yes)

    async def work(management: ManagementClient) -> int:
        return await management.purge(await _kind_at(management, address), address)

    count = ask(url, virtual_host, work)
    if as_json:
        print_json({"address": address, "count": count})
    else:
        typer.echo(f"{_messages(count)} dropped from {address}")


def move(
    source: Annotated[str, typer.Argument(help="A queue or subscription.", show_default=False)],
    target: Annotated[str, typer.Argument(help="The target address.", show_default=False)],
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, metavar="N", help="At most so many.")
    ] = None,
    url: Url = DEFAULT_URL,
    virtual_host: VirtualHost = None,
    as_json: Json = False,
) -> None:
    """Move the messages that no consumer holds to another address, in their order."""

    async def work(management: ManagementClient) -> MoveResult:
        return await _move(management, source, target, count)

    result = ask(url, virtual_host, work)
    if as_json:
        print_json({"source": source, "target": target, "count": result.count})
    else:
        typer.echo(f"{_messages(result.count)} moved from {source} to {target}")
    if result.refused:
        raise ManagementError(HTTPStatus.CONFLICT, f"{target} refused a message: {result.refused}")


async def _move(
    management: ManagementClient, source: str, target: str, count: int | None
) -> MoveResult:
    """Move messages in several requests, because one request moves at most some thousands."""
    kind = await _kind_at(management, source)
    # Messages that arrive meanwhile are not moved: otherwise this might never end.
    attributes = await management.read(kind, source)
    available = attributes.get("available", 0)
    wanted = available if isinstance(available, int) else 0
    if count is not None:
        wanted = min(wanted, count)
    moved = 0
    while True:
        # Ask for one message even if there is none, so that the broker checks the request.
        part = await management.move(source, target, max(1, wanted - moved), type=kind)
        moved += part.count
        if part.refused is not None or not part.count or moved >= wanted:
            return MoveResult(moved, part.refused)


Holder = Annotated[str, typer.Argument(help="A queue or subscription.", show_default=False)]
Ids = Annotated[
    list[int] | None,
    typer.Option("--id", metavar="N", help="The number of a message, as peek prints it."),
]
Reason = Annotated[
    str | None,
    typer.Option(metavar="REASON", help="Only dead letters with this reason: rejected, expired, …"),
]
DiedIn = Annotated[
    str | None,
    typer.Option("--source", metavar="ADDRESS", help="Only dead letters of this queue."),
]
Select = Annotated[
    str | None,
    typer.Option(metavar="CONDITION", help="Only messages that meet a condition."),
]
AtMost = Annotated[
    int | None, typer.Option("--count", "-n", min=1, metavar="N", help="At most so many.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only tell how many messages there are; change nothing.")
]


def requeue(
    source: Holder,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Where the messages go; by default each to the queue in which it died.",
        ),
    ] = None,
    ids: Ids = None,
    reason: Reason = None,
    died_in: DiedIn = None,
    selector: Select = None,
    count: AtMost = None,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    virtual_host: VirtualHost = None,
    as_json: Json = False,
) -> None:
    """Put dead letters back: all, or those that are selected. Messages that consumers hold stay."""
    arguments = _selection(ids, reason, died_in, selector, count, dry_run)
    if to is not None:
        arguments["target"] = to
    done = _select("REQUEUE", source, arguments, url, virtual_host)
    _print_selected("requeued from", source, done, dry_run, as_json)


def remove(
    source: Holder,
    ids: Ids = None,
    reason: Reason = None,
    died_in: DiedIn = None,
    selector: Select = None,
    count: AtMost = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    virtual_host: VirtualHost = None,
    as_json: Json = False,
) -> None:
    """Drop selected messages that no consumer holds. At least one of --id, --reason, --source and
    --selector is needed; purge drops all."""
    arguments = _selection(ids, reason, died_in, selector, count, dry_run)
    confirm(f"Drop the selected messages in {source!r}?", yes or dry_run)
    done = _select("REMOVE", source, arguments, url, virtual_host)
    _print_selected("removed from", source, done, dry_run, as_json)


def _selection(
    ids: list[int] | None,
    reason: str | None,
    died_in: str | None,
    selector: str | None,
    count: int | None,
    dry_run: bool,
) -> dict[str, object]:
    arguments: dict[str, object] = {"dry-run": dry_run}
    for name, value in (
        ("sequences", ids or None),
        ("reason", reason),
        ("source", died_in),
        ("selector", selector),
        ("count", count),
    ):
        if value is not None:
            arguments[name] = value
    return arguments


def _select(
    operation: str, source: str, arguments: dict[str, object], url: str, virtual_host: str | None
) -> dict[str, object]:
    async def work(management: ManagementClient) -> dict[str, object]:
        kind = await _kind_at(management, source)
        # A long queue takes its time.
        response = await management.request(operation, kind, source, arguments, timeout=None)
        return response.map()

    return ask(url, virtual_host, work)


def _print_selected(
    what: str, source: str, done: dict[str, object], dry_run: bool, as_json: bool
) -> None:
    count = done.get("count")
    if as_json:
        print_json({"source": source, "dry-run": dry_run, **done})
    else:
        would = "would be " if dry_run else ""
        typer.echo(f"{_messages(count if isinstance(count, int) else 0)} {would}{what} {source}")
    refused = done.get("refused")
    if refused is not None:
        raise ManagementError(HTTPStatus.CONFLICT, f"some messages stay: {refused}")


def peek(
    address: Address,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, max=1000, metavar="N", help="At most so many.")
    ] = 10,
    start: Annotated[
        int | None,
        typer.Option(
            "--from",
            min=0,
            metavar="N",
            help="The first sequence, or the first offset of a stream.",
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="The partition of a stream, from 0.")
    ] = None,
    url: Url = DEFAULT_URL,
    virtual_host: VirtualHost = None,
    as_json: Json = False,
) -> None:
    """Show messages without changing them, also those that consumers hold."""

    async def work(management: ManagementClient) -> list[PeekedMessage]:
        kind = await _kind_at(management, address)
        return await management.peek(kind, address, _peek(kind, count, start, partition))

    for found in ask(url, virtual_host, work):
        known = found.attributes
        place = known.get("sequence", known.get("offset"))
        try:
            message = found.message
        except DecodeError:
            message = Message(body=found.payload)
        if as_json:
            print_json({**known, "message": json.loads(message_json(message))})
        else:
            death = known.get("dead-letter")
            why = f"\t{_death(death)}" if isinstance(death, dict) else ""
            typer.echo(f"{place}\t{message_text(message)}{why}")


def _peek(kind: str, count: int, start: int | None, partition: int | None) -> dict[str, object]:
    arguments: dict[str, object] = {"count": count}
    if start is not None:
        arguments["from-offset" if kind == "stream" else "from-sequence"] = start
    if partition is not None and kind == "stream":
        arguments["partition"] = partition
    return arguments


def _death(death: dict[str, object]) -> str:
    """Return why a message is a dead letter, in one line without tabs."""
    times = death.get("count")
    text = f"{death.get('reason')} in {death.get('source')} at {plain(death.get('time'))}"
    if isinstance(times, int) and times > 1:
        text += f", died {times} times"
    if "description" in death:
        text += f": {death['description']}"
    return " ".join(text_of(text).split())


def _messages(count: int) -> str:
    return f"{count} message{'' if count == 1 else 's'}"
