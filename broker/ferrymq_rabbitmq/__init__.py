"""The personality `rabbitmq`: what clients of RabbitMQ 4 expect of a broker over AMQP 1.0."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ferrymq_broker.server.personalities import PersonalityPackage
from ferrymq_rabbitmq.personality import RabbitmqPersonality

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.broker import Broker
    from ferrymq_broker.nodes.personality import Personality


def make(
    space: AddressSpace, broker: Broker, settings: Mapping[str, object], folder: Path
) -> Personality:
    """Return the personality of a virtual host. Raises `ValueError` for wrong settings."""
    return RabbitmqPersonality(space, broker, settings)


RABBITMQ = PersonalityPackage(make)
