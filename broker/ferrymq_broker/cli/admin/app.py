"""The group of admin commands."""

from __future__ import annotations

from typing import Final

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
from ferrymq_broker.cli.admin.messages import move, peek, purge, remove, requeue
from ferrymq_broker.cli.admin.queue_leases import leases, release_leases
from ferrymq_broker.cli.admin.reload import reload
from ferrymq_broker.cli.admin.session import VirtualHost
from ferrymq_broker.cli.admin.stream_holds import holds, release
from ferrymq_broker.cli.any_order import AnyOrderGroup
from ferrymq_broker.cli.connect_options import take_options
from ferrymq_broker.cli.credentials import PasswordFile, TokenFile, User
from ferrymq_broker.cli.options import DEFAULT_URL, Json, Url
from ferrymq_broker.cli.tls_options import Ca, Cert, Key, NoVerify

_HELP: Final = (
    "Inspect and change a running broker.\n\nThe options may come before the command or after it."
)

admin: typer.Typer = typer.Typer(
    name="admin",
    cls=AnyOrderGroup,
    help=_HELP,
    no_args_is_help=True,
    add_completion=False,
)


@admin.callback(help=_HELP)
def _options(
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
    """Store the common options, which may come before the command or after it."""
    # The commands have --url, --virtual-host and --json; `AnyOrderGroup` gives these to them.
    take_options(user, password_file, token_file, ca, cert, key, no_verify)


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
    requeue,
    remove,
    peek,
    holds,
    release,
    leases,
    release_leases,
    reload,
):
    admin.command()(_command)
