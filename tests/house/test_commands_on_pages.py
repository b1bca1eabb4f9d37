"""Every command on a page can be typed in: programs, targets and options exist.

`ferrymq` commands are parsed by the command line itself. Modules of the repository are asked for
their options. Programs of others are listed here.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from typing import Any, Final

import click
import pytest
import typer

from ferrymq_broker.cli.app import make_app
from tests.house.test_docs import FENCE, PAGES, ROOT
from tests.house.test_makefile import EXPLAINED

SHELL: Final = ("sh", "bash")
# Programs of others, with which a page shows something.
OTHERS: Final = {
    ".", "cat", "cd", "curl", "echo", "eval", "export", "kill", "seq", "sleep", "tshark", "xxd",
    "zip", "env/bin/venv-pack", "spark-submit", "$SPARK_HOME/bin/spark-class", "for", "do", "done",
    "rabbitmqadmin", "rabbitmqctl",
}  # fmt: skip
# Modules of others that are run.
MODULES: Final = {"venv", "build", "pip", "mypy", "pytest", "black"}
EXTRAS: Final = set(
    tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
)


def commands(code: str) -> list[list[str]]:
    """Return the commands of a block, each as words, without comments and output."""
    found: list[list[str]] = []
    for line in code.replace("\\\n", " ").splitlines():
        # Where output goes is no argument.
        line = re.sub(r" \d?>(&\d| *[\w./~-]+)", "", line)
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;()")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word and set(word) <= set("|&;()"):
                if words:
                    found.append(words)
                words = []
            elif words or not re.match(r"[A-Z_]+=", word):
                words.append(word)
    return found


BLOCKS = [
    pytest.param(code, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, (_, language, code) in enumerate(FENCE.findall(page.read_text("utf-8")))
    if language in SHELL
]


@pytest.mark.parametrize("code", BLOCKS)
def test_every_command_can_be_typed_in(code: str) -> None:
    for words in commands(code):
        if words[0].startswith("{"):
            # What a command answers.
            continue
        check(words)


def check(words: list[str]) -> None:
    """Fail if a command does not exist, or does not take its arguments."""
    program = words[0].removeprefix(".venv/bin/").removeprefix("shop/bin/")
    if program == "ferrymq":
        parse(words[1:])
    elif program == "make":
        targets = [word for word in words[1:] if "=" not in word]
        assert set(targets) <= set(EXPLAINED), words
        for word in words[1:]:
            if word.startswith("ARGS=") and "bench" in targets:
                check_options("bench", shlex.split(word.removeprefix("ARGS=")))
    elif program in ("pip", "env/bin/pip"):
        assert words[1] == "install", words
        for extra in re.findall(r"\bferrymq\[([\w,]+)\]", " ".join(words)):
            assert set(extra.split(",")) <= EXTRAS, words
    elif program in ("python", "python3") and words[1:2] == ["-m"]:
        if words[2] not in MODULES:
            assert importlib.util.find_spec(words[2]) is not None, words
            check_options(words[2], words[3:])
    elif program in ("python", "python3") and words[1] == "-c":
        compile(words[2], "page", "exec")
    elif program in ("python", "python3") and words[1].endswith(".py"):
        assert "/" not in words[1] or (ROOT / words[1]).exists(), words
        assert (ROOT / words[1]).exists() or len(words) == 2, words
    else:
        assert program in OTHERS, words


def parse(words: list[str]) -> None:
    """Have the command line of ferrymq parse its arguments."""
    command: Any = typer.main.get_command(make_app())
    name = "ferrymq"
    parent: click.Context | None = None
    while True:
        context = command.make_context(name, list(words), parent=parent, resilient_parsing=False)
        if not hasattr(command, "resolve_command"):
            return
        rest = [*context._protected_args, *context.args]
        name, command, words = command.resolve_command(context, rest)
        assert command is not None, rest
        parent = context


@functools.cache
def help_of(module: str, *subcommand: str) -> str:
    """Return what a module prints for `--help`."""
    done = subprocess.run(
        [sys.executable, "-m", module, *subcommand, "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    return done.stdout + done.stderr


def check_options(module: str, words: list[str]) -> None:
    """Fail if a module of the repository does not know an option."""
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    if not options:
        return
    subcommand = [words[0]] if re.fullmatch(r"[a-z]+", words[0]) else []
    text = help_of(module) + (help_of(module, *subcommand) if subcommand else "")
    for option in options:
        assert option in text, f"{module} has no {option}"


def test_toml_of_every_page_is_toml() -> None:
    for page in PAGES:
        for _, language, code in FENCE.findall(page.read_text("utf-8")):
            if language == "toml":
                tomllib.loads(code)
