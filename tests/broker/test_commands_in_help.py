"""The help of `ferrymq`: it has the summaries of commands that it does not import."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from ferrymq_broker.cli.app import make_app

# The command line is not compiled.
pytestmark = pytest.mark.once

GROUP: Any = typer.main.get_command(make_app())


def test_the_summaries_are_those_of_the_commands() -> None:
    context = GROUP.make_context("ferrymq", ["serve"])
    for name in GROUP.commands:
        _, command, _ = GROUP.resolve_command(context, [name])
        summary = GROUP.get_command(context, name).help
        assert command.help.partition("\n\n")[0].replace("\n", " ") == summary, name
        assert command.name == name
