"""``ferrymq admin leases|release-leases``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from ferrymq import ManagementClient
from ferrymq_broker.cli.admin.session import VirtualHost, Yes, ask, confirm
from ferrymq_broker.cli.admin.tables import print_json, print_list
from ferrymq_broker.cli.options import DEFAULT_URL, Json, Url

_COLUMNS: Final = ["queue", "holder", "number", "messages", "bytes", "expiry"]


def leases(
    queue: Annotated[
        str | None, typer.Argument(help="Only leases of this queue.", show_default=False)
    ] = None,
    url: Url = DEFAULT_URL,
    virtual_host: VirtualHost = None,
    as_json: Json = False,
) -> None:
    """List the leases of queues: who keeps messages, how many and how many bytes, and when each
    lease lapses if it is not renewed."""

    async def work(management: ManagementClient) -> list[dict[str, object]]:
        names = [queue]
        if queue is None:
            rows = [row async for row in management.query("queue", ["name", "leases"])]
            names = [str(row["name"]) for row in rows if row.get("leases")]
        found: list[dict[str, object]] = []
        for name in names:
            answer = (await management.request("LIST-LEASES", "queue", name)).map()
            here = answer.get("leases")
            for one in here if isinstance(here, list) else []:
                found.append({"queue": name, **one})
        return found

    found = ask(url, virtual_host, work)
    if as_json:
        print_json(found)
    else:
        print_list(_COLUMNS, [_row(one) for one in found])


def release_leases(
    queue: Annotated[str, typer.Argument(help="The queue.", show_default=False)],
    holder: Annotated[str, typer.Argument(help="The holder.", show_default=False)],
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    virtual_host: VirtualHost = None,
    as_json: Json = False,
) -> None:
    """Release all leases of a holder on a queue. The messages return to their places, and no failed
    delivery is counted. If the holder still works, others get messages that it is working on."""
    confirm(f"Give the messages of {queue!r} that {holder!r} has leased to other consumers?", yes)

    async def work(management: ManagementClient) -> dict[str, object]:
        return (
            await management.request("RELEASE-LEASES", "queue", queue, {"holder": holder})
        ).map()

    ended = ask(url, virtual_host, work)
    if as_json:
        print_json({"queue": queue, "holder": holder, **ended})
    else:
        numbers = ended.get("numbers")
        count = len(numbers) if isinstance(numbers, list) else 0
        typer.echo(f"{count} leases with {ended.get('messages')} messages are over")


def _row(one: dict[str, object]) -> dict[str, object]:
    expiry = one.get("expiry")
    if not isinstance(expiry, int):
        return one
    time = datetime.fromtimestamp(expiry / 1000, UTC).isoformat(timespec="seconds")
    return {**one, "expiry": time}
