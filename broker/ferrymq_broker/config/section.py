"""What every table of the configuration has in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


def kebab(name: str) -> str:
    """The key of a field: ``max_length`` is written ``max-length``."""
    return name.replace("_", "-")


class Section(BaseModel):
    """A table of the file: unknown keys are errors, nothing changes once it is read."""

    model_config = ConfigDict(
        alias_generator=kebab,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        # Validators are made when a whole file is read, not one for every table of it.
        defer_build=True,
        # What was typed in the wrong place may be a password.
        hide_input_in_errors=True,
    )


class StrictSection(Section):
    """A table in which ``"5"`` is no number and ``1`` is not true."""

    model_config = ConfigDict(strict=True)
