"""The admin commands put together."""

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
from ferrymq_broker.cli.credentials import PasswordFile, User, take_credentials
from ferrymq_broker.cli.securing import Ca, Cert, Key, NoVerify, take_options

admin = typer.Typer(
    name="admin",
    help="Look at a running broker and change what it has.",
    no_args_is_help=True,
    add_completion=False,
)


@admin.callback()
def _options(
    user: User = None,
    password_file: PasswordFile = None,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    no_verify: NoVerify = False,
) -> None:
    """Look at a running broker and change what it has."""
    take_credentials(user, password_file)
    take_options(ca, cert, key, no_verify)


admin.command("list")(list_entities)
for command in (show, create, update, delete, bind, unbind, purge, move, peek):
    admin.command()(command)
