"""``ferrymq completion``."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]


class Shell(StrEnum):
    """Shells that can complete commands of `ferrymq`."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print a script for a shell that completes commands and options.

    bash: eval "$(ferrymq completion bash)" in ~/.bashrc.
    zsh: the same in ~/.zshrc, after compinit.
    fish: ferrymq completion fish > ~/.config/fish/completions/ferrymq.fish
    """
    script = get_completion_script(
        prog_name="ferrymq", complete_var="_FERRYMQ_COMPLETE", shell=shell.value
    )
    sys.stdout.write(script + "\n")
