"""Commands of other installed packages: entry points of the group `ferrymq.commands`.

Each of them is a typer application, or a function that is one command. They work without the
packages of the broker. If packages that a command itself needs are missing, it says which.
"""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import typer

GROUP: Final = "ferrymq.commands"
# The extra that installs the packages of a command.
_EXTRAS: Final = {
    "pipeline": "spark",
    "generate": "codegen",
    "describe": "codegen",
    "import-definitions": "broker",
    "testing": "broker",
}


def missing(package: str | None, extra: str) -> str:
    """Return the line that names a missing package and the extra that installs it."""
    return f"ferrymq: {package} is missing; pip install 'ferrymq[{extra}]'"


def extra_of(arguments: list[str]) -> str:
    """Return the extra that installs the packages of the command that the arguments name."""
    installed = {entry.name for entry in entry_points(group=GROUP)}
    return next((_EXTRAS.get(name, name) for name in arguments[:1] if name in installed), "broker")


def add_installed(app: typer.Typer) -> None:
    """Add all commands of other packages."""
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        _add(app, entry)


def run_installed(arguments: list[str]) -> None:
    """Run the command of another package that the arguments name, and exit; else return.

    Raises `ModuleNotFoundError` without typer.
    """
    found = [entry for entry in entry_points(group=GROUP) if entry.name in arguments[:1]]
    if not found:
        return
    import typer

    app = typer.Typer(name="ferrymq", add_completion=False, pretty_exceptions_enable=False)
    # With a callback, the name of a single command is not left out.
    app.callback()(lambda: None)
    _add(app, found[0])
    try:
        app(arguments, prog_name="ferrymq")
    except KeyboardInterrupt:
        sys.exit(130)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"ferrymq: {error}\n")
        sys.exit(1)


def _add(app: typer.Typer, entry: EntryPoint) -> None:
    import typer

    try:
        loaded = entry.load()
    except ModuleNotFoundError as error:
        _add_missing(app, entry, str(error.name))
        return
    if isinstance(loaded, typer.Typer):
        app.add_typer(loaded, name=entry.name)
    else:
        app.command(entry.name)(loaded)


def _add_missing(app: typer.Typer, entry: EntryPoint, package: str) -> None:
    import typer

    extra = extra_of([entry.name])

    @app.command(
        entry.name,
        help=f"Not installed: pip install 'ferrymq[{extra}]'",
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )
    def say() -> None:
        typer.echo(missing(package, extra), err=True)
        raise typer.Exit(1)
