"""Commands of other installed packages: entry points of the group `ferrymq.commands`.

Each of them is a typer application, or a function that is one command. They work without the
packages of the broker. If packages that a command itself needs are missing, it says which.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

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


def _entry_points() -> EntryPoints:
    # The commands of the broker start sooner without this module.
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)


def extra_of(arguments: list[str]) -> str:
    """Return the extra that installs the packages of the command that the arguments name."""
    installed = {entry.name for entry in _entry_points()}
    return next((_EXTRAS.get(name, name) for name in arguments[:1] if name in installed), "broker")


@functools.cache
def installed_commands() -> dict[str, Any]:
    """Import the commands of other packages. Return them by their names, in the order of these."""
    return {
        entry.name: _load(entry) for entry in sorted(_entry_points(), key=lambda entry: entry.name)
    }


def command_of(name: str, made_of: Any) -> Any:
    """Return the command that a typer application is, or a function."""
    import typer

    app = made_of
    if not isinstance(made_of, typer.Typer):
        app = typer.Typer(add_completion=False)
        app.command(name)(made_of)
    command = typer.main.get_command(app)
    command.name = name
    return command


def _load(entry: EntryPoint) -> Any:
    try:
        return command_of(entry.name, entry.load())
    except ModuleNotFoundError as error:
        return _missing_command(entry.name, str(error.name))


def _missing_command(name: str, package: str) -> Any:
    import typer

    app = typer.Typer(add_completion=False)
    extra = extra_of([name])

    @app.command(
        name,
        help=f"Not installed: pip install 'ferrymq[{extra}]'",
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )
    def say() -> None:
        typer.echo(missing(package, extra), err=True)
        raise typer.Exit(1)

    return command_of(name, app)
