"""Commands of other packages: with the broker's packages, without them, without their own."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from ferrymq_broker.cli.app import make_app

# The command with some packages taken away.
WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
from ferrymq_broker.cli import main
sys.argv = ["ferrymq", *{arguments!r}]
main()
"""
# Without pydantic, which typer may bring with it.
BROKER = ["structlog", "lmdb", "google_crc32c", "argon2", "aiohttp", "joserfc", "lark", "pyspark"]
GENERATOR = ["lxml", "jinja2", "black"]


def ferrymq(names: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    code = WITHOUT.format(names=names, arguments=arguments)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("names", "arguments", "missing", "extra"),
    [
        (["structlog"], ["serve"], "structlog", "broker"),
        (["lmdb"], ["store", "info", "."], "lmdb", "broker"),
        (["typer"], ["serve"], "typer", "broker"),
        (["typer"], ["generate", "x.xml", "--package", "x"], "typer", "codegen"),
        (["typer"], ["describe"], "typer", "codegen"),
        (["typer"], ["pipeline"], "typer", "spark"),
        (GENERATOR, ["generate", "x.xml", "--package", "x"], "lxml", "codegen"),
        (BROKER + GENERATOR, ["generate", "x.xml", "--package", "x"], "lxml", "codegen"),
    ],
)
def test_one_line_says_which_extra_is_missing(
    names: list[str], arguments: list[str], missing: str, extra: str
) -> None:
    done = ferrymq(names, *arguments)
    assert done.returncode == 1
    assert done.stderr == f"ferrymq: {missing} is missing; pip install 'ferrymq[{extra}]'\n"


def test_commands_of_others_work_without_the_broker() -> None:
    described = ferrymq(BROKER + GENERATOR, "describe", "attach")
    assert described.returncode == 0, described.stderr
    assert described.stdout.startswith("attach: attach a link\n")
    generated = ferrymq(BROKER, "generate", "no-such.xml", "--package", "shop_types")
    assert (generated.returncode, generated.stdout) == (1, "")
    assert generated.stderr == "no-such.xml: no such file\n"
    wrong = ferrymq(BROKER, "describe", "--no-such")
    assert wrong.returncode == 2


def test_they_are_in_the_help() -> None:
    said = CliRunner().invoke(make_app(), ["--help"]).output
    assert all(name in said for name in ("generate", "describe", "pipeline"))
