"""A folder to write specs into, and the generator run as a user runs it, in this process."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from ferrymq_codegen.cli import main

ROOT = Path(__file__).resolve().parents[2]
HEAD = '<?xml version="1.0"?>\n<amqp name="case" xmlns="http://www.amqp.org/schema/amqp.xsd">\n'


@dataclass
class Result:
    """What a run printed and how it ended."""

    status: int
    out: str
    err: str


class Workshop:
    """Spec folders below a temporary directory; the primitives of types.xml are in `base`."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.capsys = capsys
        self.base = folder / "base"
        self.spec = folder / "spec"
        self.out = folder / "out" / "case_types"
        self.base.mkdir()
        self.spec.mkdir()
        shutil.copy(ROOT / "spec" / "types.xml", self.base)

    def write(self, text: str, name: str = "case.xml", folder: str = "spec") -> Path:
        """Write a whole file."""
        path = self.folder / folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
        return path

    def types(self, text: str, name: str = "case.xml") -> Path:
        """Write a part whose single section holds `text`, which begins on line 4."""
        return self.write(f'{HEAD}<section name="s">\n{text}\n</section></amqp>\n', name)

    def run(self, *arguments: str) -> Result:
        """Run the command line."""
        self.capsys.readouterr()
        status = main(list(arguments))
        printed = self.capsys.readouterr()
        return Result(status, printed.out, printed.err)

    def generate(self, *arguments: str) -> Result:
        """Generate from the base and the written spec."""
        folders = ["--spec", str(self.base), "--spec", str(self.spec)]
        return self.run("generate", *folders, "--out", str(self.out), *arguments)


@pytest.fixture
def workshop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Workshop:
    return Workshop(tmp_path, capsys)
