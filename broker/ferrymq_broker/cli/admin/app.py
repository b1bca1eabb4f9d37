"""The group of admin commands."""

from __future__ import annotations

import typer

from ferrymq_broker.cli.admin.entities import (
    bind,
    create,
    delete,
    list_entities,
    show,
    unbind,
    update,
)
from ferrymq_broker.cli.admin.messages import move, peek, purge
from ferrymq_broker.cli.admin.reload import reload
from ferrymq_broker.cli.admin.stream_holds import holds, release
from ferrymq_broker.cli.connect_options import take_options

admin: typer.Typer = typer.Typer(
    name="admin",
    help="Inspect and change a running broker.",
    no_args_is_help=True,
    add_completion=False,
)


admin.callback(help="Inspect and change a running broker.")(take_options)
admin.command("list")(list_entities)
for _command in (
    show,
    create,
    update,
    delete,
    bind,
    unbind,
    purge,
    move,
    peek,
    holds,
    release,
    reload,
):
    admin.command()(_command)
