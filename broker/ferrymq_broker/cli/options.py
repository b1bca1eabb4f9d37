"""Options of several commands."""

from __future__ import annotations

from typing import Annotated

import typer

DEFAULT_URL = "amqp://127.0.0.1:5672"

Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="FERRYMQ_URL",
        metavar="URL",
        help="The broker: amqp://[USER@]HOST[:PORT], or amqps://, ws://, wss://. Several URLs of"
        " one broker have commas between them.",
    ),
]

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def of_file(name: str, variable: str, help: str) -> object:
    """Return an option with the path of a file; its default is in the environment variable
    `variable`."""
    return typer.Option(name, envvar=variable, metavar="FILE", help=help, show_default=False)
