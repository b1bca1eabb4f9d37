"""The package of the personality `rabbitmq`: makes it, and its handlers, for a virtual host."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ferrymq_broker.server.host_tables import HostTables
from ferrymq_broker.server.personalities import PersonalityPackage
from ferrymq_rabbitmq.amqp_0_9_1.channel_connection import PROTOCOL_HEADER, ChannelConnection
from ferrymq_rabbitmq.personality import RabbitmqPersonality

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.broker import Broker
    from ferrymq_broker.nodes.personality import Personality
    from ferrymq_broker.server.http_handlers import HttpHandler, HttpHost


def make(
    space: AddressSpace, broker: Broker, settings: Mapping[str, object], folder: Path
) -> Personality:
    """Return the personality of a virtual host. Raises `ValueError` for wrong settings."""
    return RabbitmqPersonality(space, broker, settings, folder)


def administer(host: HttpHost) -> HttpHandler:
    """Return the handler of HTTP requests below ``/api``."""
    from ferrymq_rabbitmq.http_api.api import make_handler

    return make_handler(host)


RABBITMQ = PersonalityPackage(
    make,
    HostTables(
        http_handlers={"/api": administer},
        http_logins=("/api",),
        protocols={PROTOCOL_HEADER: ChannelConnection},
    ),
)
