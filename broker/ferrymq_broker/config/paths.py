"""Paths of files in a configuration: relative to the folder of the configuration file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, ValidationInfo

# The key in the validation context for the folder of the configuration file.
FOLDER = "folder"


def _check(value: object) -> object:
    if value == "":
        raise ValueError("the path is empty; to use no file, leave the key out")
    if isinstance(value, str) and "\0" in value:
        raise ValueError("a path cannot contain NUL")
    return value


def _locate(path: Path, info: ValidationInfo) -> Path:
    context = info.context
    folder = context.get(FOLDER) if isinstance(context, dict) else None
    return folder / path if isinstance(folder, Path) else path


# The path of a file. A relative path begins at the folder of the configuration file; in a `Config`
# that a program has made, at the current directory.
File = Annotated[Path, BeforeValidator(_check), AfterValidator(_locate)]
