"""Permissions: the rights that a link needs.

Rights are checked for addresses with aliases resolved, before a node is looked up or created. A
client without any such right at an address gets the same answer whether the node exists or not. A
client with some right there is told which right it lacks; for that the broker may look at the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from ferrymq_broker import audit
from ferrymq_broker.access.access import NEW_DYNAMIC, UNAUTHORIZED, refusal
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.exchanges.routing_key import further_keys_of, key_of
from ferrymq_broker.nodes.exchanges.routing_key_target import RoutingKeyTarget
from ferrymq_broker.nodes.queues.relay import Relay
from ferrymq_broker.nodes.topics.subscription_identity import SubscriptionIdentity, is_open_to
from ferrymq_broker.values.names import DYNAMIC, PART
from ferrymq_broker.values.policy import QueuePolicy, TopicPolicy
from ferrymq_broker.values.rights import BROWSE, CREATE, DEAD_LETTER, MANAGE, RECEIVE, SEND
from ferrymq_types.messaging import Source

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.connections.connected_client import ConnectedClient
    from ferrymq_broker.connections.durable_links.terminus import Terminus
    from ferrymq_broker.nodes.link_terms import SourceTerms
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.node import Node
    from ferrymq_types.messaging import Target

# The node to which clients send tokens.
TOKENS: Final = "$cbs"
_READING: Final = RECEIVE | BROWSE | DEAD_LETTER


def meant_by(client: ConnectedClient, named: str) -> str:
    """Return the address whose rights are checked: the native one, with aliases resolved.

    Raises `BrokerError` if the aliases form a circle. Only clients with all rights are told so.
    """
    try:
        return client.space.meant_by(named)
    except BrokerError:
        if client.access.open:
            raise
        return named


def judged_at(space: AddressSpace, address: str) -> str:
    """Return the address whose rights count at an address: for a sub-queue, that of its owner."""
    return space.owner_of(address) or address


def require_source(
    client: ConnectedClient,
    address: str,
    named: str,
    copy: bool,
    capabilities: Sequence[str] = (),
) -> None:
    """Raise `BrokerError` if a link may not receive from an address, with aliases resolved.

    `named` is the client's name for it, `copy` is whether it asks for distribution mode copy.
    """
    access = client.access
    space = client.space
    if access.open:
        return
    if address in space.open_services:
        _require_any(client, address, RECEIVE, named)
        return
    served = _entity_of_service(space, address)
    if served:
        if access.rights(served) == 0:
            raise refusal(RECEIVE, named)
        return
    if address.startswith(DYNAMIC):
        node = space.nodes.get(address)
        if node is not None and node.owner == client.id:
            return
    judged = judged_at(space, address)
    rights = access.rights(judged)
    if (rights & _READING) == 0:
        raise refusal(BROWSE if copy else RECEIVE, named)
    right = reading_right(space, address, copy, capabilities)
    if (rights & right) == 0:
        raise refusal(right, named)
    if (rights & MANAGE) == 0 and is_foreign(judged, client.user):
        raise refusal(MANAGE, named)


def require_target(client: ConnectedClient, address: str, named: str) -> None:
    """Raise `BrokerError` if a link may not send to an address, with aliases resolved."""
    access = client.access
    space = client.space
    if access.open:
        return
    if address in space.open_services:
        _require_any(client, address, SEND, named)
        return
    served = _entity_of_service(space, address)
    if not served:
        access.require_send(address, named)
    elif access.rights(served) == 0:
        raise refusal(SEND, named)


def require_something(client: ConnectedClient) -> None:
    """Raise `BrokerError` if the client has no right at any address: then it may only put a token,
    and have neither a coordinator nor the anonymous terminus."""
    if not client.access.gives_anything():
        raise BrokerError(
            UNAUTHORIZED, f"nothing is allowed to you yet; put a token at {TOKENS} first"
        )


def _require_any(client: ConnectedClient, address: str, right: i64, named: str) -> None:
    """Raise `BrokerError` if the client has no right at any address and this is not where tokens
    are put."""
    if address != TOKENS and not client.access.gives_anything():
        raise refusal(right, named)


def _entity_of_service(space: AddressSpace, address: str) -> str:
    """Return the entity that a service of the personality is about; empty for other addresses.

    Such a service checks rights for each request: any right at the entity is enough for a link.
    """
    personality = space.personality
    return "" if personality is None else personality.entity_of_service(address)


def require_message(client: ConnectedClient, node: Node, message: BrokerMessage) -> None:
    """Raise `BrokerError` if the client may not send to an exchange with the routing key in the
    message, or to the destination of a relay. Raises `DecodeError`."""
    access = client.access
    if isinstance(node, Relay):
        # A token for the destination may have expired since the attach.
        access.require_send(node.destination)
    if not access.asks_for_parts():
        return
    exchange = node.exchange if isinstance(node, RoutingKeyTarget) else node
    if isinstance(exchange, Exchange):
        # The key in the address of a target was checked with the address.
        keys = [key_of(message)] if exchange is node else []
        for key in (*keys, *further_keys_of(message, exchange.space.copies_annotation)):
            if key:
                access.require_send(f"{exchange.address}{PART}{key}")


def require_subscription(client: ConnectedClient, node: Node, terms: SourceTerms) -> None:
    """Raise `BrokerError` if a link may not have the subscription that its name identifies.

    Rules may exist for that subscription alone; and a durable subscription of the same name on
    another topic would be replaced.
    """
    access = client.access
    if access.open or node.kind != "topic" or terms.part:
        return
    identity = SubscriptionIdentity(terms)
    if not identity.kept and not identity.shared:
        return
    space = client.space
    name = identity.name(terms)
    address = f"{node.address}{PART}{name}"
    right = reading_right(space, address, False)
    named = f"{node.address}{PART}{identity.label}"
    if not access.permits_part(right, address, named):
        raise refusal(right, name)
    other = space.durables.get(identity.key) if identity.kept else None
    if other is not None and other is not node and not access.permits(_READING, other.address):
        raise refusal(RECEIVE, name)


def may_recall(client: ConnectedClient, told: Source | Target) -> bool:
    """Return whether a link whose attach has no terminus may be told the earlier one.

    A client may know its own terminus even without a right to use it, but not the terminus of
    another client.
    """
    access = client.access
    address = told.address
    if access.open or address is None:
        return True
    if client.user is not None and "global" not in (told.capabilities or []):
        return True
    address = judged_at(client.space, meant_by(client, address))
    right = _READING if isinstance(told, Source) else SEND
    if access.permits(right, address) or address.startswith(DYNAMIC):
        return True
    # The client is told that there was none; the audit log has the address.
    put_on_record(client, refusal(right, address), "link")
    return False


def require_terminus(client: ConnectedClient, terminus: Terminus | None) -> None:
    """Raise `BrokerError` if a link may not take over this terminus.

    A terminus belongs to the user of its link. Anonymous clients cannot be told apart, so they need
    a right at its address.
    """
    if terminus is None or not client.is_nameless():
        return
    reads = terminus.key[4]
    address = meant_by(client, terminus.told.address or "")
    right = reading_right(client.space, address, False) if reads else SEND
    address = judged_at(client.space, address)
    if not client.access.permits(right, address) and (reads or not address.startswith(DYNAMIC)):
        raise refusal(right, f"the terminus of {terminus.key[3][:100]}")


def require_dynamic(client: ConnectedClient) -> None:
    """Raise `BrokerError` if the client may not create a dynamic node."""
    client.access.require(CREATE, NEW_DYNAMIC)


def reading_right(
    space: AddressSpace, address: str, copy: bool, capabilities: Sequence[str] = ()
) -> i64:
    """Return the right that is needed to receive from an address, or to get copies.

    That is `RECEIVE`, `BROWSE`, or `DEAD_LETTER` at the dead-letter address of a queue.
    """
    if space.dead_letter_index.has(address):
        return DEAD_LETTER
    return BROWSE if copy and _is_browsed(space, address, capabilities) else RECEIVE


def _is_browsed(space: AddressSpace, address: str, capabilities: Sequence[str]) -> bool:
    """Return whether copies leave all messages in place: in a queue, or in a subscription by its
    address. A topic or a stream gives only copies."""
    cut = -1
    node = space.nodes.get(address)
    if node is None:
        cut = address.rfind(PART)
        if cut > 0:
            address = address[:cut]
            node = space.nodes.get(address)
    if node is not None:
        return node.kind == "queue" or (cut > 0 and node.kind == "topic")
    policy = space.policy_for(address, capabilities)
    return isinstance(policy, QueuePolicy) or (cut > 0 and isinstance(policy, TopicPolicy))


def is_foreign(address: str, user: str | None) -> bool:
    """Return whether an address is that of a subscription of another user."""
    cut = address.rfind(PART)
    return cut > 0 and not is_open_to(address[cut + len(PART) :], user)


def put_on_record(client: ConnectedClient, error: BrokerError, via: str) -> None:
    """Write a refusal to the audit log if a right was missing.

    `via` is what the client used: a ``link``, a ``message``, a ``transaction``.
    """
    if error.condition == UNAUTHORIZED:
        audit.access_refused(
            client.peer, client.user, error.description, client.space.name, via=via
        )
