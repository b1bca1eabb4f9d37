"""Stage 4: black, as a library."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp
from typing import Final

import black
from black.mode import TargetVersion
from black.parsing import ASTSafetyError, InvalidInput
from black.report import NothingChanged

from ferrymq_codegen.mistakes import Location, Mistake, SpecError

MODE: Final = black.Mode(target_versions={TargetVersion.PY311}, line_length=100)


def format_files(files: dict[str, str]) -> dict[str, str]:
    """Format every Python file.

    Raises `SpecError` if black refuses a file, which is a fault of the generator. The error names a
    folder with the unformatted output.
    """
    formatted: dict[str, str] = {}
    for name, text in files.items():
        try:
            formatted[name] = _format(text) if name.endswith(".py") else text
        except (InvalidInput, ASTSafetyError) as error:
            kept = Path(mkdtemp(prefix="codegen-unformatted-"))
            for other, content in files.items():
                (kept / other).write_text(content, "utf-8")
            raise SpecError([Mistake(Location(str(kept / name), 0), f"{error}")]) from error
    return formatted


def _format(text: str) -> str:
    try:
        return black.format_file_contents(text, fast=True, mode=MODE)
    except NothingChanged:
        return text
