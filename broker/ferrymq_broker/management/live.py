"""Keepers of users, rules and the configuration, by which the management node changes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ferrymq_broker.config.apply.differences import Difference
from ferrymq_broker.config.model import Config
from ferrymq_broker.management.access_rules import RuleKeeper
from ferrymq_broker.management.users import UserKeeper


class ConfigKeeper(Protocol):
    """An object that can read the configuration again."""

    @property
    def in_force(self) -> Config:
        """The configuration that is in force."""

    def compare(self) -> tuple[str, Sequence[Difference]]:
        """Read the file again; return its name, empty without one, and the settings that differ
        from those in force, where `applied` is whether a reload applies them. Raises
        `ConfigError`."""

    def reload(self) -> Sequence[Difference]:
        """Read all files again, and apply what can change while the broker runs. Return the
        settings that differ. Raises `ConfigError`, and then nothing has changed."""


@dataclass(frozen=True, slots=True)
class LiveKeepers:
    """The keepers of one server."""

    config: ConfigKeeper
    users: UserKeeper
    rules: RuleKeeper
