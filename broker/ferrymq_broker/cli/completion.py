"""``ferrymq completion``."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
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
    sys.stdout.write(_script(shell))


def _script(shell: Shell) -> str:
    script: str = get_completion_script(
        prog_name="ferrymq", complete_var="_FERRYMQ_COMPLETE", shell=shell.value
    )
    return script + "\n"


if __name__ == "__main__":
    # For packages: the scripts as files in a folder, each with the name of its shell.
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for each in Shell:
        (folder / each.value).write_text(_script(each), "utf-8")
