"""Permissions: the rights that a link takes.

All of it is asked of addresses with aliases followed, before a node is looked up or made. Who may
do nothing of the kind somewhere is told the same whether there is such a node or not. Who may do
something there gets to know what it is that he lacks: the broker may look at the node for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from ferrymq_broker import audit
from ferrymq_broker.access.access import NEW_DYNAMIC, UNAUTHORIZED, refusal
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.exchanges.routing_key import key_of
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

# Services that ask for rights at every request: every client may have a link to them.
_SERVICES: Final = ("$management", "$cbs")
_READING: Final = RECEIVE | BROWSE | DEAD_LETTER


def meant_by(client: ConnectedClient, named: str) -> str:
    """Return the address that rights are asked for at: aliases are followed.

    Raises `BrokerError` if they lead in a circle. Only clients that may do everything are told.
    """
    try:
        return client.space.canonical(named)
    except BrokerError:
        if client.access.open:
            raise
        return named


def require_source(
    client: ConnectedClient,
    address: str,
    named: str,
    copy: bool,
    capabilities: Sequence[str] = (),
) -> None:
    """Raise `BrokerError` if a link may not receive from an address, with aliases followed.

    `named` is what the client calls it, `copy` whether it asks for distribution mode copy.
    """
    access = client.access
    if access.open or address in _SERVICES:
        return
    space = client.space
    if address.startswith(DYNAMIC):
        node = space.nodes.get(address)
        if node is not None and node.owner == client.id:
            return
    rights = access.rights(address)
    if (rights & _READING) == 0:
        raise refusal(BROWSE if copy else RECEIVE, named)
    right = reading_right(space, address, copy, capabilities)
    if (rights & right) == 0:
        raise refusal(right, named)
    if (rights & MANAGE) == 0 and is_foreign(address, client.user):
        raise refusal(MANAGE, named)


def require_target(client: ConnectedClient, address: str, named: str) -> None:
    """Raise `BrokerError` if a link may not send to an address, with aliases followed."""
    access = client.access
    if not access.open and address not in _SERVICES:
        access.require_send(address, named)


def require_key(client: ConnectedClient, node: Node, message: BrokerMessage) -> None:
    """Raise `BrokerError` if the routing key that a message brings to an exchange itself is one
    that may not be sent there. Raises `DecodeError`."""
    access = client.access
    if isinstance(node, Exchange) and access.asks_for_parts():
        key = key_of(message)
        if key:
            access.require_send(f"{node.address}{PART}{key}")


def require_subscription(client: ConnectedClient, node: Node, terms: SourceTerms) -> None:
    """Raise `BrokerError` if a link may not have the subscription that its own name stands for.

    There may be rules for that subscription alone; and a durable one of the same name, to another
    topic, would have to give way.
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
    """Return whether a link that does not say where it is from, or to, may be told that it was
    this.

    What is one's own one may know, even if one may use it no more; but not everybody's.
    """
    access = client.access
    address = told.address
    if access.open or address is None:
        return True
    if client.user is not None and "global" not in (told.capabilities or []):
        return True
    address = meant_by(client, address)
    right = _READING if isinstance(told, Source) else SEND
    if access.permits(right, address) or address.startswith(DYNAMIC):
        return True
    # The client is told that there was none; the audit log has what it was.
    put_on_record(client, refusal(right, address), "link")
    return False


def require_terminus(client: ConnectedClient, terminus: Terminus | None) -> None:
    """Raise `BrokerError` if a link may not take the place of those that had this terminus.

    It is that of the link's own user. Of those who have no name everybody may be the one who has
    it; so it takes a right at its address.
    """
    if terminus is None or not client.is_nameless():
        return
    reads = terminus.key[4]
    address = meant_by(client, terminus.told.address or "")
    right = reading_right(client.space, address, False) if reads else SEND
    if not client.access.permits(right, address) and (reads or not address.startswith(DYNAMIC)):
        raise refusal(right, f"the terminus of {terminus.key[3][:100]}")


def require_dynamic(client: ConnectedClient) -> None:
    """Raise `BrokerError` if no node is to be made for a link."""
    client.access.require(CREATE, NEW_DYNAMIC)


def reading_right(
    space: AddressSpace, address: str, copy: bool, capabilities: Sequence[str] = ()
) -> i64:
    """Return the right to receive from an address, or to get copies of what is there.

    That is `RECEIVE`, `BROWSE`, or `DEAD_LETTER` where a queue's dead or expired messages go.
    """
    if space.dead_letter_index.has(address):
        return DEAD_LETTER
    return BROWSE if copy and _is_browsed(space, address, capabilities) else RECEIVE


def _is_browsed(space: AddressSpace, address: str, capabilities: Sequence[str]) -> bool:
    """Return whether copies leave everything as it is: those of a queue, or of a subscription by
    its address, do; a topic or a stream gives nothing but copies."""
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
    """Return whether an address would be that of a subscription of somebody else."""
    cut = address.rfind(PART)
    return cut > 0 and not is_open_to(address[cut + len(PART) :], user)


def put_on_record(client: ConnectedClient, error: BrokerError, via: str) -> None:
    """Write a refusal to the audit log if it was for want of a right.

    `via` is how the client tried: by a ``link``, a ``message``, a ``transaction``.
    """
    if error.condition == UNAUTHORIZED:
        audit.access_refused(
            client.peer, client.user, error.description, client.space.name, via=via
        )
