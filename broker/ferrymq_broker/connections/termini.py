"""Attach: which node a link is for, on what terms, and what the answer says (AMQP 1.0 §3.5).

A broker must not lie: the source and target in the answer are what the link really gets. Addresses
come back verbatim; filters, durability and capabilities that are not honoured do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrymq.engine.link import Link
from ferrymq.engine.pairing import is_paired
from ferrymq.engine.receiver import ReceiverLink
from ferrymq.engine.sender import SenderLink
from ferrymq_broker.connections.incoming import IncomingEndpoint
from ferrymq_broker.connections.outcomes import SUPPORTED_OUTCOMES, is_terminal
from ferrymq_broker.connections.outgoing import OutgoingEndpoint
from ferrymq_broker.connections.terms import check_source, check_target
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.filter_set import FilterSet
from ferrymq_broker.nodes.node import Node
from ferrymq_broker.nodes.policy import QueuePolicy
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.terms import Party, SourceTerms, TargetTerms
from ferrymq_types.messaging import DeleteOnClose, Source, Target, TerminusExpiryPolicy

if TYPE_CHECKING:
    from ferrymq_broker.connections.handler import ConnectionHandler


def expect_unpaired(link: Link) -> None:
    """Raise `BrokerError` if the link asks to be half of a pair: no node answers requests.

    Nodes store and forward; none makes responses of its own (Link Pairing 1.0 §2.1.1, §2.2.1).
    """
    attach = link.remote_attach
    if attach is not None and is_paired(attach.properties):
        raise BrokerError("amqp:not-implemented", "no node here supports link pairing")


def attach_outgoing(handler: ConnectionHandler, link: SenderLink) -> OutgoingEndpoint:
    """Accept a link that wants messages. Raises `BrokerError` if it cannot have them."""
    attach = link.remote_attach
    asked = None if attach is None else attach.source
    if attach is None or asked is None:
        raise BrokerError("amqp:invalid-field", "attach of a receiver without a source")
    check_source(asked)
    copies = asked.distribution_mode == "copy"
    if not copies and asked.distribution_mode not in (None, "move"):
        raise BrokerError(
            "amqp:not-implemented",
            f"distribution mode {asked.distribution_mode!r}; there are move and copy",
        )
    part = ""
    node: Node
    if asked.dynamic:
        node = handler.space.create_dynamic(QueuePolicy())
        handler.dynamic_nodes[link] = node
    elif asked.address is None:
        raise BrokerError("amqp:invalid-field", "the source has no address and is not dynamic")
    else:
        node, part = handler.space.resolve(asked.address)
    party = Party(handler.id, 0, handler.container_id, handler.user, handler.peer)
    terms = SourceTerms(party, link.name, part, FilterSet())
    terms.distribution_mode = asked.distribution_mode
    terms.capabilities = list(asked.capabilities or [])
    source_node = node.open_source(terms)
    default_outcome = asked.default_outcome if is_terminal(asked.default_outcome) else None
    source = Source(
        address=node.address if asked.dynamic else asked.address,
        expiry_policy=TerminusExpiryPolicy.LINK_DETACH,
        dynamic=asked.dynamic,
        dynamic_node_properties=_lifetime() if asked.dynamic else None,
        distribution_mode=terms.granted_mode,
        default_outcome=default_outcome,
        outcomes=asked.outcomes or list(SUPPORTED_OUTCOMES),
        capabilities=terms.granted_capabilities or None,
    )
    target = attach.target
    if target is None:
        # Clients look for a target in the answer even if they sent none.
        target = Target(address=link.name)
    link.accept(source=source, target=target, max_message_size=handler.max_message_size)
    agreed = asked.outcomes or None
    endpoint = OutgoingEndpoint(link, handler, node, source_node, terms, default_outcome, agreed)
    node.link_opened()
    source_node.subscribe(endpoint)
    return endpoint


def attach_incoming(handler: ConnectionHandler, link: ReceiverLink) -> IncomingEndpoint:
    """Accept a link that brings messages. Raises `BrokerError` if nobody takes them."""
    attach = link.remote_attach
    asked = None if attach is None else attach.target
    if attach is None or asked is None:
        raise BrokerError("amqp:invalid-field", "attach of a sender without a target")
    if not isinstance(asked, Target):
        raise BrokerError("amqp:not-implemented", "there is no transaction coordinator")
    check_target(asked)
    node: Node | None = None
    if asked.dynamic:
        node = handler.space.create_dynamic(QueuePolicy())
        handler.dynamic_nodes[link] = node
    elif asked.address is not None:
        node, part = handler.space.resolve(asked.address)
        party = Party(handler.id, 0, handler.container_id, handler.user, handler.peer)
        node = node.open_target(TargetTerms(party, link.name, part))
    # Without an address each message names its own (Anonymous Terminus for Message Routing 1.0).
    target = Target(
        address=node.address if asked.dynamic and node is not None else asked.address,
        expiry_policy=TerminusExpiryPolicy.LINK_DETACH,
        dynamic=asked.dynamic,
        dynamic_node_properties=_lifetime() if asked.dynamic else None,
        capabilities=_capabilities(asked.capabilities, node),
    )
    source = attach.source
    if source is None:
        source = Source(address=link.name, outcomes=list(SUPPORTED_OUTCOMES))
    link.accept(source=source, target=target, max_message_size=handler.max_message_size)
    endpoint = IncomingEndpoint(link, handler, node, handler.credit_window)
    if node is not None:
        node.producers.append(endpoint)
        node.link_opened()
    link.set_credit(handler.credit_window)
    return endpoint


def _capabilities(asked: list[str] | None, node: Node | None) -> list[str] | None:
    """Of the capabilities asked for, those the node has: only what it is, so far."""
    if asked is not None and "queue" in asked and isinstance(node, Queue):
        return ["queue"]
    return None


def _lifetime() -> dict[str, object]:
    """What every dynamic node does, whatever was asked for (AMQP 1.0 §3.5.9–10)."""
    return {"lifetime-policy": DeleteOnClose()}
