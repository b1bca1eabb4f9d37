"""Management as clients of other brokers know it: their entity types, and their names for the
status of a response."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ferrymq_broker.management.entity import EntityType
from ferrymq_broker.management.operation import Result

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace


@dataclass(frozen=True, slots=True)
class ManagementDialect:
    """Entity types whose names begin with `prefix`. `make_types` makes those of a virtual host.

    `status_names` returns further application-properties of the response to a request whose type
    has that prefix, also if there is no such type.
    """

    prefix: str
    make_types: Callable[[AddressSpace], Sequence[EntityType]]
    status_names: Callable[[Result], dict[str, object]]
