"""The group of definitions commands."""

from __future__ import annotations

import typer

from ferrymq_broker.cli.any_order import AnyOrderGroup
from ferrymq_broker.cli.connect_options import take_options
from ferrymq_broker.cli.definitions.export import export
from ferrymq_broker.cli.definitions.import_ import import_

definitions: typer.Typer = typer.Typer(
    name="definitions",
    cls=AnyOrderGroup,
    help="Export and import what a broker has: nodes, bindings, aliases, policies, rules, users.",
    no_args_is_help=True,
    add_completion=False,
)

definitions.callback(
    help="Export and import what a broker has: nodes, bindings, aliases, policies, rules, users."
)(take_options)
definitions.command()(export)
definitions.command("import")(import_)
