"""The directory for captured streams, and the size of its files: ``[capture]``."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, field_validator

from ferrymq_broker.config.section import Section
from ferrymq_broker.config.units import Duration, Size


def _directory(value: object) -> object:
    if value == "":
        raise ValueError("the path is empty; to capture nothing, leave the key out")
    if isinstance(value, str) and "\0" in value:
        raise ValueError("a path cannot contain NUL")
    return value


class Capture(Section):
    """``[capture]``: the directory that streams with ``capture = true`` are captured to.

    A file is closed when it has `max_records` records or `max_bytes` of messages, `max_age`
    milliseconds after its first record, and at the end of each hour. With `raw`, files also have a
    column with the published bytes of each message.
    """

    directory: Annotated[Path, BeforeValidator(_directory)] | None = None
    max_records: int = Field(default=1_000_000, ge=1)
    max_bytes: Annotated[Size, Field(ge=1024)] = 256 * 1024 * 1024
    max_age: Annotated[Duration, Field(ge=100)] = 300_000
    raw: bool = True

    @field_validator("directory")
    @classmethod
    def _check_directory(cls, directory: Path | None) -> Path | None:
        if directory is not None and importlib.util.find_spec("pyarrow") is None:
            raise ValueError(
                "capture writes Parquet, which needs pyarrow: pip install 'ferrymq[arrow]'"
            )
        return directory
