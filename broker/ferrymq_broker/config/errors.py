"""What is wrong with a configuration, and where."""

from __future__ import annotations

from typing import NamedTuple

# The keys and places in lists that lead to a value, as pydantic has them: ``("queue", 2, "name")``.
Location = tuple[int | str, ...]


class ConfigMistake(NamedTuple):
    """One thing that is wrong: where, why, and where the other one is that it collides with."""

    location: Location
    reason: str
    other: Location | None = None


class ConfigMistakes(ValueError):
    """Everything that is wrong with settings that are right one by one."""

    def __init__(self, found: list[ConfigMistake]) -> None:
        super().__init__("\n".join(mistake.reason for mistake in found))
        self.found = found
