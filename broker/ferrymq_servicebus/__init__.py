"""The personality `azure`: what clients of Azure Service Bus and Event Hubs expect of a broker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ferrymq_broker.server.host_tables import HostTables
from ferrymq_broker.server.personalities import PersonalityPackage
from ferrymq_servicebus.hub_tables import HUB_TABLES
from ferrymq_servicebus.personality import AzurePersonality

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.broker import Broker
    from ferrymq_broker.nodes.personality import Personality
    from ferrymq_broker.server.http_handlers import HttpHandler, HttpHost


def make(
    space: AddressSpace, broker: Broker, settings: Mapping[str, object], folder: Path
) -> Personality:
    """Return the personality of a virtual host."""
    return AzurePersonality(space, settings, folder)


def administer(host: HttpHost) -> HttpHandler:
    """Return the handler of HTTP requests for a virtual host."""
    from ferrymq_servicebus.administration.http_api import make_handler

    return make_handler(host)


# What the service offers in its open.
_MAX_FRAME_SIZE = 1024 * 1024

AZURE = PersonalityPackage(
    make,
    HUB_TABLES.joined(
        HostTables(
            websocket_subprotocols=("AMQPWSB10",),
            http_handlers={"": administer},
            max_frame_size=_MAX_FRAME_SIZE,
        )
    ),
)
