"""Commands of other installed packages: the entry points of the group `ferrymq.commands`.

Each entry point is a typer application, which becomes a group of commands. If packages that it
needs are missing, the command says which.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

import typer

GROUP = "ferrymq.commands"

# The extra that installs the packages of a command.
_EXTRAS = {"pipeline": "spark"}


def add_installed(app: typer.Typer) -> None:
    """Add all commands of other packages."""
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            app.add_typer(entry.load(), name=entry.name)
        except ModuleNotFoundError as error:
            _add_missing(app, entry, str(error.name))


def _add_missing(app: typer.Typer, entry: EntryPoint, missing: str) -> None:
    extra = _EXTRAS.get(entry.name, entry.name)

    @app.command(
        entry.name,
        help=f"Not installed: pip install 'ferrymq[{extra}]'",
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )
    def say() -> None:
        typer.echo(f"ferrymq: {missing} is missing; pip install 'ferrymq[{extra}]'", err=True)
        raise typer.Exit(1)
