"""Every page of the broker, the client and the pipeline has tests that hold what it promises."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import PAGES

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("broker", "client", "pipeline")


def written() -> set[str]:
    """The pages, by the names that markers have for them."""
    docs = ROOT / "docs"
    return {
        page.relative_to(docs).with_suffix("").as_posix()
        for folder in FOLDERS
        for page in (docs / folder).glob("*.md")
    }


def marked() -> set[str]:
    """The pages that tests name themselves."""
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text("utf-8")
        # Parsing all tests would take seconds.
        if "node_modules" in path.parts or "mark.page" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.page":
                constants = [one for one in node.args if isinstance(one, ast.Constant)]
                found |= {str(constant.value) for constant in constants}
    return found


def test_every_page_has_tests_and_every_page_with_tests_is_there() -> None:
    assert written() == set(PAGES)
    assert marked() <= written()


@pytest.mark.parametrize("page", sorted(PAGES))
def test_every_place_has_tests(page: str) -> None:
    for place in PAGES[page]:
        path = ROOT / "tests" / place
        modules = sorted(path.glob("test_*.py")) if place.endswith("/") else [path]
        assert modules, place
        for module in modules:
            assert re.search(r"^ *(async )?def test_|^Test\w+ = ", module.read_text("utf-8"), re.M)


def test_the_tests_of_a_page_can_be_run() -> None:
    def collected(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
        return subprocess.run(
            [*command, *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    modules = ("tests/broker/queues/test_groups.py", "tests/broker/queues/test_order_model.py")
    done = collected("--page", "broker/groups", *modules)
    assert done.returncode == 0, done.stdout
    assert "test_groups.py" in done.stdout and "test_order_model.py" not in done.stdout
    # By its path as well; tests can name pages themselves.
    done = collected("--page", "docs/broker/queues.md", *modules)
    assert "test_groups.py" in done.stdout and "test_order_model.py" in done.stdout
    assert "none with tests: broker/cues" in collected("--page", "broker/cues", *modules).stderr
