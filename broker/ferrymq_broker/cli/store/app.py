"""The group of store commands."""

from __future__ import annotations

import typer

from ferrymq_broker.cli.any_order import AnyOrderGroup
from ferrymq_broker.cli.connect_options import take_options
from ferrymq_broker.cli.store.copy import backup, compact
from ferrymq_broker.cli.store.export import export
from ferrymq_broker.cli.store.import_ import import_
from ferrymq_broker.cli.store.restore import restore
from ferrymq_broker.cli.store.verify import info, verify

store: typer.Typer = typer.Typer(
    name="store",
    cls=AnyOrderGroup,
    help="Inspect, check, copy, export, import and restore the files of a store.",
    no_args_is_help=True,
    add_completion=False,
)
store.callback(help="Inspect, check, copy, export, import and restore the files of a store.")(
    take_options
)
for _command in (verify, info, compact, backup, export, restore):
    store.command()(_command)
store.command("import")(import_)
