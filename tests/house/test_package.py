"""What a package has beside the modules: description, types, manual pages, completions."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

import ferrymq
from ferrymq_broker.cli.man_pages import write_man_pages

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))

pytestmark = pytest.mark.once


def test_the_version_is_that_of_the_module() -> None:
    assert ferrymq.__version__ == PROJECT["project"]["version"]


def test_every_package_says_that_it_has_types() -> None:
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert [each for each in packages if not (ROOT / each / "py.typed").is_file()] == []


def test_the_description_has_absolute_links() -> None:
    core = ProjectMetadata(str(ROOT), PluginManager()).core
    assert core.readme_content_type == "text/markdown"
    links = re.findall(r"\]\(([^)]*)\)", core.readme)
    assert len(links) > 20
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    # Each leads to a file of the repository.
    for link in links:
        path = re.sub(r"^.*/(blob|raw)/main/", "", link).partition("#")[0]
        assert path == link.partition("#")[0] or (ROOT / path).exists(), link


def test_each_command_has_a_manual_page_that_is_in_order(tmp_path: Path) -> None:
    pages = write_man_pages(tmp_path)
    names = {page.name for page in pages}
    assert {"ferrymq.1", "ferrymq-serve.1", "ferrymq-admin.1", "ferrymq-describe.1"} <= names
    assert "\\fB\\-\\-listen URL\\fR" in (tmp_path / "ferrymq-serve.1").read_text("utf-8")
    if shutil.which("mandoc") is not None:
        done = subprocess.run(
            ["mandoc", "-T", "lint", "-W", "warning", *pages], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout
    if shutil.which("man") is not None:
        done = subprocess.run(
            ["man", "--warnings", "-l", tmp_path / "ferrymq-admin.1"],
            capture_output=True,
            text=True,
            env=os.environ | {"MANPAGER": "cat", "MANWIDTH": "100"},
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert "ferrymq-admin - Inspect and change a running broker" in done.stdout


def test_the_completions_are_written_as_files(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ferrymq_broker.cli.completion", str(tmp_path)]
    subprocess.run(command, check=True)
    assert {path.name for path in tmp_path.iterdir()} == {"bash", "zsh", "fish"}
    assert "complete -o default" in (tmp_path / "bash").read_text("utf-8")
