"""`ferrymq completion`: shells complete commands with the scripts that it prints."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# The command line is not compiled.
pytestmark = pytest.mark.once

# What each shell does when a user presses the tab key, without a terminal.
BASH = """
eval "$(ferrymq completion bash)"
COMP_WORDS=(ferrymq completion f) COMP_CWORD=2
_ferrymq_completion ferrymq
echo "${COMPREPLY[@]}"
"""
ZSH = """
autoload -U compinit; compinit -D
eval "$(ferrymq completion zsh)"
_arguments() { print -r -- "$@" }
words=(ferrymq completion f) CURRENT=3
$_comps[ferrymq]
"""
FISH = """
ferrymq completion fish | source
complete -C "ferrymq completion f"
"""


@pytest.mark.parametrize(
    "shell, script",
    [("bash", BASH), ("zsh", ZSH), ("fish", FISH)],
    ids=["bash", "zsh", "fish"],
)
def test_a_shell_completes_arguments(shell: str, script: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    command = tmp_path / "ferrymq"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m ferrymq_broker "$@"\n')
    command.chmod(0o755)
    done = subprocess.run(
        [shell, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)},
    )
    assert done.stderr == ""
    assert "fish" in done.stdout
    assert "zsh" not in done.stdout
