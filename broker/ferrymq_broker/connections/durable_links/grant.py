"""Granting termini that outlive their links: which ones do, and what clients are told (AMQP 1.0
§3.5.5).

A target outlives its link if the client asks for any durability or a longer life than that of its
session. A source does so only if the client asks for durability: messages that are held for a
client that does not return are kept from all other clients. For queues and for subscriptions of one
client the deliveries are kept (durability unsettled-state). Deliveries of shared subscriptions go
to other links, those of a session to its next owner, and streams and browsers hold nothing.

If the queue locks messages, their locks outlive the link instead of the deliveries. In a virtual
host with a personality deliveries end with the link.

The broker grants what it keeps: without a store, or for a node that is not stored, it grants no
durability, but it does grant expiry policy and timeout. A dynamic node ends with its link. So does
the anonymous terminus of anonymous clients if there are access rules, because nothing distinguishes
these clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from ferrymq_broker.connections.delivery_mode import EXACTLY_ONCE
from ferrymq_broker.connections.durable_links.link_identity import LinkIdentity
from ferrymq_broker.connections.durable_links.source import SourceTerminus
from ferrymq_broker.connections.durable_links.target import TargetTerminus
from ferrymq_broker.connections.permissions import require_terminus
from ferrymq_types.messaging import Source, Target

if TYPE_CHECKING:
    from ferrymq.engine.link import Link
    from ferrymq.engine.receiver import ReceiverLink
    from ferrymq.engine.sender import SenderLink
    from ferrymq_broker.connections.parts import ConnectionParts
    from ferrymq_broker.nodes.link_terms import SourceTerms
    from ferrymq_broker.nodes.node import Node
    from ferrymq_types.unions import Outcome


def outlives(asked: Source | Target) -> bool:
    """Return whether the client asks for a longer life than that of a session."""
    return (
        asked.durable.value > 0
        or asked.timeout > 0
        or asked.expiry_policy.value in ("never", "connection-close")
    )


def lasts(asked: Source | Target) -> bool:
    """Return whether the client asks for a terminus that still exists when a lost link is attached
    again."""
    return asked.timeout > 0 or asked.expiry_policy.value == "never"


def holds(node: Node, asked: Source) -> bool:
    """Return whether deliveries from the node outlive a link with this source."""
    return (
        asked.durable.value > 1
        and not asked.dynamic
        # What a personality adds to a delivery is not the same each time.
        and node.space.personality is None
        and "shared" not in (asked.capabilities or [])
        and not node.locks_messages()
        and (node.kind == "topic" or (node.kind == "queue" and asked.distribution_mode != "copy"))
    )


def find_target(parts: ConnectionParts, link: Link) -> Target | None:
    """Return the target that the link had before, for an attach without one."""
    terminus = parts.shared.termini.find(parts.client.link_key(link))
    return terminus.told if terminus is not None and isinstance(terminus.told, Target) else None


def find_source(parts: ConnectionParts, link: Link) -> Source | None:
    """Return the source that the link had before, for an attach without one."""
    terminus = parts.shared.termini.find(parts.client.link_key(link))
    return terminus.told if terminus is not None and isinstance(terminus.told, Source) else None


# -- targets -------------------------------------------------------------------------------------


def remember_target(
    parts: ConnectionParts,
    link: ReceiverLink,
    asked: Target,
    node: Node | None,
    address: str,
    mode: str,
) -> TargetTerminus | None:
    """Find or create the terminus of a link on which the client sends; None if it ends with the
    link.

    Call this before the attach is answered, because the answer has what the terminus grants. `node`
    is None for the anonymous terminus; `address` is that of the target with aliases resolved,
    `mode` the delivery mode. Raises `BrokerError` if there are too many termini.
    """
    termini = parts.shared.termini
    key = parts.client.link_key(link)
    known = termini.find(key)
    require_terminus(parts.client, known)
    if (
        asked.dynamic
        or not outlives(asked)
        or (asked.address is None and parts.client.is_nameless())
    ):
        if known is not None:
            known.end()
        return None
    durable: i64 = asked.durable.value
    if not parts.shared.agenda.changes.enabled or (node is not None and node.store_id == 0):
        durable = 0
    identity = LinkIdentity(key, address, durable, mode)
    once = mode == EXACTLY_ONCE
    if isinstance(known, TargetTerminus) and known.identity.matches(identity):
        terminus = known
        known.identity = identity
        known.attach(link)
        known.once = once
        known.resume(link)
    else:
        if known is not None:
            known.end()
        termini.expect_room(key[0], key[1], parts.client.space.max_nodes)
        terminus = TargetTerminus(identity, termini, asked)
        terminus.once = once
        if durable > 0:
            terminus.store_id = parts.shared.agenda.changes.new_id()
        termini.add(terminus)
        terminus.attach(link)
    terminus.grant(asked.expiry_policy.value, asked.timeout)
    return terminus


def forget_target(parts: ConnectionParts, link: ReceiverLink) -> None:
    """Forget what is remembered under the name of a link that is now a control link.

    Anonymous clients do not forget for one another.
    """
    if parts.client.is_nameless():
        return
    known = parts.shared.termini.find(parts.client.link_key(link))
    if known is not None:
        known.end()
    parts.shared.seen_tags.forget(parts.client, link, "")


# -- sources -------------------------------------------------------------------------------------


def remember_source(
    parts: ConnectionParts,
    link: SenderLink,
    asked: Source,
    node: Node,
    queue: Node,
    terms: SourceTerms,
    default: Outcome | None,
    mode: str,
) -> SourceTerminus | None:
    """Find or create the terminus of a link that receives messages of `queue`; None if it ends with
    the link.

    Call this before the attach is answered; it fills in what the terms grant. `mode` is the
    delivery mode. Raises `BrokerError` if there are too many termini.
    """
    termini = parts.shared.termini
    key = parts.client.link_key(link)
    known = termini.find(key)
    require_terminus(parts.client, known)
    shared = "shared" in terms.capabilities
    plain = asked.dynamic or asked.durable.value == 0 or terms.browses or queue.kind != "queue"
    if plain or shared or terms.session:
        if known is not None:
            known.end()
        if not plain and queue is not node and queue.store_id != 0:
            # The subscription is kept, but not the deliveries of its links.
            terms.granted_durable = 1
        return None
    durable: i64 = asked.durable.value
    if not parts.shared.agenda.changes.enabled or queue.store_id == 0:
        durable = 0
    # The locks outlive the link instead; and what a personality adds to a delivery is not the same
    # each time, so that the rest of a delivery could not be sent over another link.
    passing = queue.locks_messages() or queue.space.personality is not None
    if passing and durable > 1:
        durable = 1
    policy = asked.expiry_policy.value
    timeout: i64 = asked.timeout
    if queue is not node and not terms.part:
        # A subscription has its own lifetime.
        policy = terms.granted_expiry_policy
        timeout = terms.granted_timeout
    terms.granted_durable = durable
    terms.granted_expiry_policy = policy
    terms.granted_timeout = timeout
    identity = LinkIdentity(key, queue.address, durable, mode)
    # A queue that was created again at the same address has none of the sent messages.
    if (
        isinstance(known, SourceTerminus)
        and known.node is queue
        and known.identity.matches(identity)
    ):
        terminus = known
        terminus.identity = identity
        terminus.fresh = False
        terminus.attach(link)
    else:
        if known is not None:
            known.end()
        termini.expect_room(key[0], key[1], parts.client.space.max_nodes)
        id: i64 = parts.shared.agenda.changes.new_id() if durable > 0 else 0
        terminus = SourceTerminus(identity, termini, asked, queue, id)
        termini.add(terminus)
        terminus.attach(link)
    terminus.holds = asked.durable.value > 1 and not passing
    terminus.default = default
    terminus.grant(policy, timeout)
    return terminus


def with_default(told: Source, asked: Outcome | None) -> Source:
    """Return the source of an answer, with the default-outcome that the client asked for.

    The terminus remembers it, because a client that named no outcomes names none when it returns,
    either.
    """
    return Source(
        address=told.address,
        durable=told.durable,
        expiry_policy=told.expiry_policy,
        timeout=told.timeout,
        dynamic=told.dynamic,
        dynamic_node_properties=told.dynamic_node_properties,
        distribution_mode=told.distribution_mode,
        filter=told.filter,
        default_outcome=asked,
        outcomes=told.outcomes,
        capabilities=told.capabilities,
    )
