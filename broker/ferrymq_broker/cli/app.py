"""The ``ferrymq`` command with its commands. Errors are a message and a status, no traceback."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from ferrymq_broker.cli.error_messages import reason_of
from ferrymq_broker.cli.installed_commands import add_installed
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.store.errors import StoreError
from ferrymq_codec.errors import AmqpError

# The modules of the commands, each with the name of a function or of a typer application.
_COMMANDS: Final = {
    "serve": ("ferrymq_broker.cli.serve", "serve"),
    "send": ("ferrymq_broker.cli.send", "send"),
    "receive": ("ferrymq_broker.cli.receive", "receive"),
    "check-config": ("ferrymq_broker.cli.check_config", "check_config"),
    "trace": ("ferrymq_broker.cli.trace.command", "trace"),
    "cert": ("ferrymq_broker.cli.cert", "cert"),
    "admin": ("ferrymq_broker.cli.admin.app", "admin"),
    "definitions": ("ferrymq_broker.cli.definitions.app", "definitions"),
    "store": ("ferrymq_broker.cli.store.app", "store"),
    "user": ("ferrymq_broker.cli.user.app", "user"),
}


def make_app(arguments: Sequence[str] = ()) -> typer.Typer:
    """Return the application for the arguments of a process.

    It has only the command that the arguments begin with, because importing the others takes longer
    than the start of a broker. With other arguments, or none, it has all of them.
    """
    app = typer.Typer(
        name="ferrymq",
        help="An AMQP 1.0 broker, and tools to send and receive messages.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    # With a callback, the name of a single command is not left out.
    app.callback()(_options)
    chosen = [name for name in arguments[:1] if name in _COMMANDS]
    for name in chosen or _COMMANDS:
        module, attribute = _COMMANDS[name]
        command = getattr(importlib.import_module(module), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command)
        else:
            app.command(name)(command)
    if not chosen:
        add_installed(app)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ferrymq {importlib.metadata.version('ferrymq')}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
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
    except (AmqpError, ConfigError, StoreError, OSError, TimeoutError, ValueError) as error:
        sys.stderr.write(f"ferrymq: {reason_of(error)}\n")
        sys.exit(1)
