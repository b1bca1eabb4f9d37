"""A user's types: one new XML file gives classes that are typed, registered and encodable."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ferrymq_codegen.amqp_1_0.own_package import generate

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).with_name("own_spec")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shop's types as the package `shop_types`, which refers to `ferrymq_types`."""
    out = tmp_path_factory.mktemp("own")
    assert generate([HERE], out, "shop_types", check=False, verify=True) == 0
    return out / "shop_types"


def python(package: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(package.parent), *sys.path])
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        cwd=package.parent,
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_application_uses_them(package: Path) -> None:
    result = python(package, str(HERE / "use.py"))
    assert (result.returncode, result.stdout) == (0, "used\n"), result.stderr


def test_there_are_strategies_for_them(package: Path) -> None:
    result = python(package, str(HERE / "strategies.py"))
    assert (result.returncode, result.stdout) == (0, "7 classes\n"), result.stderr


def mypy(package: Path, file: str) -> list[str]:
    folders = [package.parent, ROOT / "runtime", ROOT / "generated"]
    path = os.pathsep.join(map(str, folders))
    result = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary"),
            f"--cache-dir={package.parent / 'cache'}",
            str(HERE / file),
        ],
        env={**os.environ, "MYPYPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    return [line for line in result.stdout.splitlines() if ": error: " in line]


def test_mypy_accepts_the_application(package: Path) -> None:
    assert mypy(package, "use.py") == []


def test_mypy_finds_every_misuse(package: Path) -> None:
    lines = (HERE / "misuse.py").read_text("utf-8").splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if "# misuse" in line}
    found = {int(line.split(":")[1]) for line in mypy(package, "misuse.py")}
    assert found == wrong


def test_types_of_amqp_are_not_copied(package: Path) -> None:
    modules = {path.stem for path in package.glob("*.py")}
    assert modules == {
        *("shop", "messaging"),
        *("__init__", "unions", "registry", "descriptors", "schema"),
    }
    for path in package.glob("*.py"):
        text = path.read_text("utf-8")
        assert "class Error" not in text and "Regenerate: ferrymq generate own_spec" in text


def test_only_xml_was_written(package: Path) -> None:
    """The package of the core spec and the hand-written runtime do not know the shop."""
    for folder in ("generated", "runtime"):
        for path in (ROOT / folder).rglob("*.py"):
            assert "shop:level:ubyte" not in path.read_text("utf-8")
