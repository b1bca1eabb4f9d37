"""The ``ferrymq`` command with its commands. Errors are a message and a status, no traceback."""

from __future__ import annotations

import importlib.metadata
import sys
from typing import Annotated

import typer

from ferrymq_broker.cli.admin.app import admin
from ferrymq_broker.cli.cert import cert
from ferrymq_broker.cli.check_config import check_config
from ferrymq_broker.cli.error_messages import reason_of
from ferrymq_broker.cli.installed_commands import add_installed
from ferrymq_broker.cli.receive import receive
from ferrymq_broker.cli.send import send
from ferrymq_broker.cli.serve import serve
from ferrymq_broker.cli.store.app import store
from ferrymq_broker.cli.trace.command import trace
from ferrymq_broker.cli.user.app import user
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.store.errors import StoreError
from ferrymq_codec.errors import AmqpError

app: typer.Typer = typer.Typer(
    name="ferrymq",
    help="An AMQP 1.0 broker, and tools to send and receive messages.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(serve)
app.command()(send)
app.command()(receive)
app.command()(check_config)
app.command()(trace)
app.command()(cert)
app.add_typer(admin)
app.add_typer(store)
app.add_typer(user)
add_installed(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ferrymq {importlib.metadata.version('ferrymq')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """An AMQP 1.0 broker, and tools to send and receive messages."""


def run() -> None:
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
