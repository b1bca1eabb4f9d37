"""The packages import only downwards, and the root folders are never import names."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_contracts_hold() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    contracts = len(tool["importlinter"]["contracts"])
    assert f"{contracts} kept, 0 broken" in done.stdout


def test_every_shipped_package_is_under_a_contract() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    shipped = {Path(name).name for name in tool["hatch"]["build"]["targets"]["wheel"]["packages"]}
    layers, *_ = tool["importlinter"]["contracts"]
    named = {"ferrymq_codegen"}
    named |= {name for layer in layers["layers"] for name in layer.split(" | ")}
    assert named == shipped
    assert set(tool["importlinter"]["root_packages"]) == shipped


def test_the_model_of_the_configuration_may_import_no_part_of_the_broker_but_the_values() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    contracts = tool["importlinter"]["contracts"]
    (model,) = (each for each in contracts if each["id"] == "config-model")
    (parts,) = (each for each in contracts if each["id"] == "broker-layers")
    known = {name for layer in parts["layers"] for name in re.split(r" [|:] ", layer)}
    allowed = {"config", "values", "__main__"}
    assert set(model["forbidden_modules"]) == {f"ferrymq_broker.{x}" for x in known - allowed}


@pytest.mark.parametrize("name", ["generated", "runtime", "broker", "pipeline", "codegen"])
def test_ruff_refuses_a_root_folder_as_import_name(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--stdin-filename", "runtime/sample.py", "-"],
        cwd=ROOT,
        input=f'"""Sample."""\n\nfrom {name}.module import thing\n\n__all__ = ["thing"]\n',
        capture_output=True,
        text=True,
        check=False,
    )
    assert "TID251" in done.stdout, done.stdout
