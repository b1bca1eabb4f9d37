"""Personalities of installed packages: entry points of the group `ferrymq.personalities`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.server.host_tables import HostTables

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.broker import Broker
    from ferrymq_broker.config.model import PersonalitySection
    from ferrymq_broker.nodes.personality import Personality

GROUP: Final = "ferrymq.personalities"


@dataclass(frozen=True, slots=True)
class PersonalityPackage:
    """What an entry point names.

    `make` is called once for each virtual host, before the store is read, with the settings of the
    configuration and its folder; it raises `ValueError` if it cannot use them. `tables` are for the
    tables of the broker.
    """

    make: Callable[[AddressSpace, Broker, Mapping[str, object], Path], Personality]
    tables: HostTables = field(default_factory=HostTables)


def find_personality(name: str) -> PersonalityPackage:
    """Return the package of a personality. Raises `ConfigError` if it is not installed."""
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in found:
        installed = ", ".join(sorted(found)) or "none"
        raise ConfigError(f"personality: {name!r} is not installed; installed: {installed}")
    package = found[name].load()
    if not isinstance(package, PersonalityPackage):
        raise ConfigError(f"personality: the entry point of {name!r} is no PersonalityPackage")
    return package


def take_personality(
    package: PersonalityPackage, broker: Broker, section: PersonalitySection
) -> None:
    """Give every virtual host its personality. Raises `ConfigError` for settings that the package
    cannot use."""
    for space in broker.spaces.values():
        try:
            space.personality = package.make(space, broker, section.settings, section.folder)
        except ValueError as error:
            raise ConfigError(f"personality: {error}") from None
