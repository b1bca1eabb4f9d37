"""What becomes of links whose rights are gone: a token has lapsed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrymq_broker.connections.link_lifecycle import SessionLinks
from ferrymq_broker.connections.permissions import put_on_record, require_source, require_target
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.node import PART

if TYPE_CHECKING:
    from ferrymq_broker.connections.consumer_link import ConsumerLink
    from ferrymq_broker.connections.handler import ConnectionHandler
    from ferrymq_broker.connections.producer_link import ProducerLink


def reauthorize_links(handler: ConnectionHandler) -> int:
    """Detach the links of a connection that it may not have any more; how many those were. To be
    called within a pass.

    What they held goes back, as always when the broker ends a link. Subscriptions and termini that
    outlive their links outlive this: their owner may come back with a better token. Links to the
    anonymous terminus stay, for each of their messages is asked about.
    """
    if handler.client.access.open:
        return 0
    gone = 0
    for session in list(handler.connection.channels.by_remote.values()):
        links = session.context
        if isinstance(links, SessionLinks):
            for outgoing in list(links.outgoing.values()):
                gone += _review_outgoing(handler, outgoing)
            for incoming in list(links.incoming.values()):
                gone += _review_incoming(handler, incoming)
    return gone


def _review_outgoing(handler: ConnectionHandler, endpoint: ConsumerLink) -> int:
    if endpoint.closed:
        return 0
    terms = endpoint.terms
    address = endpoint.asked.address
    if terms.part:
        address = f"{address}{PART}{terms.part}"
    try:
        require_source(handler.client, address, address, terms.distribution_mode == "copy")
    except BrokerError as lacking:
        put_on_record(handler.client, lacking, "link")
        endpoint.refuse(lacking.condition, lacking.description)
        return 1
    return 0


def _review_incoming(handler: ConnectionHandler, endpoint: ProducerLink) -> int:
    if endpoint.closed or not endpoint.address:
        return 0
    try:
        require_target(handler.client, endpoint.address, endpoint.address)
    except BrokerError as lacking:
        put_on_record(handler.client, lacking, "link")
        endpoint.refuse(lacking.condition, lacking.description)
        return 1
    return 0
