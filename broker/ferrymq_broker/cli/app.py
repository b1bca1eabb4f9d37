"""The ``ferrymq`` command with its commands. Errors are a message and a status, no traceback.

This module imports typer and nothing of the broker: the module of a command is imported when the
command runs, because importing all of them takes longer than the start of a broker.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from ferrymq_broker.cli.installed_commands import command_of, installed_commands

# The module of each command, the name of its function or typer application, and what `--help` says.
_COMMANDS: Final = {
    "serve": (
        "ferrymq_broker.cli.serve",
        "serve",
        "Run the broker until it is told to stop.",
    ),
    "send": (
        "ferrymq_broker.cli.send",
        "send",
        "Send messages and wait until all are accepted.",
    ),
    "receive": (
        "ferrymq_broker.cli.receive",
        "receive",
        "Receive messages, print them and accept them.",
    ),
    "admin": (
        "ferrymq_broker.cli.admin.app",
        "admin",
        "Inspect and change a running broker.",
    ),
    "top": (
        "ferrymq_broker.cli.top",
        "top",
        "Show the busiest nodes of a running broker, live.",
    ),
    "definitions": (
        "ferrymq_broker.cli.definitions.app",
        "definitions",
        "Export and import what a broker has: nodes, bindings, aliases, policies, rules, users.",
    ),
    "user": (
        "ferrymq_broker.cli.user.app",
        "user",
        "Manage the users in the file of the setting security.users-file.",
    ),
    "store": (
        "ferrymq_broker.cli.store.app",
        "store",
        "Inspect, check, copy, export, import and restore the files of a store.",
    ),
    "replica": (
        "ferrymq_broker.cli.replica.app",
        "replica",
        "Set up, inspect and switch the cluster of brokers that share a journal.",
    ),
    "check-config": (
        "ferrymq_broker.cli.check_config",
        "check_config",
        "Check a configuration without starting a broker.",
    ),
    "trace": (
        "ferrymq_broker.cli.trace.command",
        "trace",
        "Show AMQP as readable text: every frame with its fields by name.",
    ),
    "cert": (
        "ferrymq_broker.cli.cert",
        "cert",
        "Make certificates for development: an authority, one for the server, some for clients.",
    ),
    "completion": (
        "ferrymq_broker.cli.completion",
        "completion",
        "Print a script for a shell that completes commands and options.",
    ),
}


class CommandGroup(TyperGroup):
    """The commands of ``ferrymq``: those of the broker, and those of other packages.

    A command of the broker is imported when it is run or completed; the help has only its summary.
    Commands of other packages are looked for only if none of the broker has the name.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        self.commands.update(installed_commands())
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command with its summary, or None if there is no command of this name."""
        if cmd_name not in self.commands:
            self.commands.update(installed_commands())
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command that the arguments begin with, ready to run: name, command, rest."""
        name, command, rest = super().resolve_command(ctx, args)
        if name in _COMMANDS:
            command = _load(name)
        # `main` has disabled it for the imports. What these have made stays to the end, so that no
        # collection has to look at it: the first one would take as long as a tenth of the imports.
        gc.freeze()
        gc.enable()
        return name, command, rest


def make_app() -> typer.Typer:
    """Return the application with all commands."""
    app = typer.Typer(
        name="ferrymq",
        cls=CommandGroup,
        help="An AMQP 1.0 broker, and tools to send and receive messages.",
        no_args_is_help=True,
        # `ferrymq completion` prints the scripts. Only the calls that these make need the rest.
        add_completion="_FERRYMQ_COMPLETE" in os.environ,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    for name, (_, _, summary) in _COMMANDS.items():
        app.command(name, help=summary)(_stand_in)
    return app


def _load(name: str) -> Any:
    """Import a command of the broker."""
    module, attribute, _ = _COMMANDS[name]
    return command_of(name, getattr(importlib.import_module(module), attribute))


def _stand_in() -> None:
    """Stand in the help for a command that is not imported. `CommandGroup` runs the command."""


def _print_version(wanted: bool) -> None:
    if wanted:
        # Only this option needs them.
        from ferrymq import __version__
        from ferrymq_broker.cli.build_variant import build_variant

        typer.echo(f"ferrymq {__version__} ({build_variant()})")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version, and whether the build is compiled or interpreted.",
        ),
    ] = False,
) -> None:
    """An AMQP 1.0 broker, and tools to send and receive messages."""


def run(app: typer.Typer) -> None:
    """Run the command of this process and exit: 0 done, 1 failed, 2 wrong usage, 130 Ctrl-C."""
    try:
        app(prog_name="ferrymq")
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of the output has ended, which is no error.
        sys.stderr.close()
        sys.exit(1)
    except Exception as error:
        # Only a command that fails needs the errors of client, configuration and store.
        from ferrymq_broker.cli.error_messages import EXPECTED, reason_of

        if not isinstance(error, EXPECTED):
            raise
        sys.stderr.write(f"ferrymq: {reason_of(error)}\n")
        sys.exit(1)
