"""``ferrymq admin holds|release``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from ferrymq import ManagementClient
from ferrymq_broker.cli.admin.session import VirtualHost, Yes, ask, confirm
from ferrymq_broker.cli.admin.tables import print_json, print_list
from ferrymq_broker.cli.options import DEFAULT_URL, Json, Url

_COLUMNS: Final = ["stream", "holder", "since", "bytes", "offsets"]
# The most offsets in a line of the table.
_ROOM: Final = 8


def holds(
    stream: Annotated[
        str | None, typer.Argument(help="Only holds of this stream.", show_default=False)
    ] = None,
    url: Url = DEFAULT_URL,
    virtual_host: VirtualHost = None,
    as_json: Json = False,
) -> None:
    """List the holds of streams: who holds records despite the limits, since when, from which
    offsets, and how many bytes are kept only for holds."""

    async def work(management: ManagementClient) -> list[dict[str, object]]:
        if stream is not None:
            return [await management.read("stream", stream)]
        return [entity async for entity in management.query("stream", ["name", "holds"])]

    found: list[dict[str, object]] = []
    for entity in ask(url, virtual_host, work):
        here = entity.get("holds")
        for one in here if isinstance(here, list) else []:
            found.append({"stream": entity.get("name"), **one})
    if as_json:
        print_json(found)
    else:
        print_list(_COLUMNS, [_row(one) for one in found])


def release(
    stream: Annotated[str, typer.Argument(help="The stream.", show_default=False)],
    holder: Annotated[str, typer.Argument(help="The holder.", show_default=False)],
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    virtual_host: VirtualHost = None,
    as_json: Json = False,
) -> None:
    """Remove a hold of a stream. Records that are kept only for this hold are dropped at once."""
    confirm(f"Drop the records of {stream!r} that are kept only for {holder!r}?", yes)

    async def work(management: ManagementClient) -> None:
        await management.request("RELEASE", "stream", stream, {"holder": holder})

    ask(url, virtual_host, work)
    if as_json:
        print_json({"stream": stream, "holder": holder})
    else:
        typer.echo(f"{holder} holds no records of {stream} any more")


def _row(one: dict[str, object]) -> dict[str, object]:
    since, offsets = one.get("since"), one.get("offsets")
    row = dict(one)
    if isinstance(since, int):
        row["since"] = datetime.fromtimestamp(since / 1000, UTC).isoformat(timespec="seconds")
    if isinstance(offsets, list):
        places = [f"{part}: {offset}" for part, offset in enumerate(offsets) if offset is not None]
        more = len(places) - _ROOM
        row["offsets"] = ", ".join(places[:_ROOM]) + (f" and {more} more" if more > 0 else "")
    return row
