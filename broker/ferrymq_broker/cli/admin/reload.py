"""``ferrymq admin reload``."""

from __future__ import annotations

from typing import Final

import typer

from ferrymq import ManagementClient
from ferrymq_broker.cli.admin.session import ask
from ferrymq_broker.cli.admin.tables import print_json, print_list
from ferrymq_broker.cli.options import DEFAULT_URL, Json, Url

_COLUMNS: Final = ["setting", "before", "after", "result"]


def reload(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Make the broker read its configuration again, and show what has changed.

    Settings that cannot change while the broker runs are shown too: they need a restart. If
    anything in the configuration is wrong, nothing changes."""

    async def work(management: ManagementClient) -> list[dict[str, object]]:
        response = await management.request("RELOAD", "broker", "broker")
        found = response.map()["differences"]
        assert isinstance(found, list)
        return found

    found = ask(url, None, work)
    if as_json:
        print_json(found)
    elif not found:
        typer.echo("nothing has changed")
    else:
        print_list(_COLUMNS, [{**each, "result": _result(each)} for each in found])


def _result(difference: dict[str, object]) -> str:
    if not difference["applied"]:
        return "needs a restart"
    note = difference["note"]
    return f"applied; {note}" if note else "applied"
