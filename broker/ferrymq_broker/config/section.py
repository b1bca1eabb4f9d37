"""The base classes of the configuration's tables."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict


def kebab(name: str) -> str:
    """Return the key of a field: ``max_length`` is written ``max-length``."""
    return name.replace("_", "-")


class Section(BaseModel):
    """A table of the file. Unknown keys are errors. A table is immutable."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        alias_generator=kebab,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        # Validators are built once, when a whole file is read, not for each table.
        defer_build=True,
        # Errors must not quote values: a value at the wrong key may be a password.
        hide_input_in_errors=True,
    )

    @classmethod
    def defaults(cls) -> Self:
        """Return the table as if the file had none.

        Defaults need no validation, and to build the validators of all tables takes a sixth of the
        time of a start.
        """
        return cls.model_construct()


class StrictSection(Section):
    """A table that does not convert types: ``"5"`` is not a number, ``1`` is not true."""

    model_config: ClassVar[ConfigDict] = ConfigDict(strict=True)
