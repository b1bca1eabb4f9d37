"""Mistakes in a configuration, and where they are.

ConfigError            the configuration is wrong; its text is for the administrator
ValueError
 └─ ConfigMistakes     settings that are each valid do not fit together
"""

from __future__ import annotations

from typing import NamedTuple

# The keys and indexes that lead to a value, in pydantic's form: ``("queue", 2, "name")``.
Location = tuple[int | str, ...]


class ConfigError(Exception):
    """The configuration is wrong. The message names file, line and remedy if they are known."""


class ConfigMistake(NamedTuple):
    """A mistake in a configuration: its place, its reason, and the other place if two disagree."""

    location: Location
    reason: str
    other: Location | None = None


class ConfigMistakes(ValueError):
    """All mistakes of settings that are each valid but do not fit together."""

    def __init__(self, found: list[ConfigMistake]) -> None:
        super().__init__("\n".join(mistake.reason for mistake in found))
        self.found = found
