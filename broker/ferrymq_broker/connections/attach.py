"""Attach: which node a link is for, on what terms, and what the answer says (AMQP 1.0 §3.5).

A broker must not lie. What the client asks for becomes terms, the node fills in what it grants, and
the answer is made of that alone. Addresses come back verbatim; filters, durability, capabilities
and properties that are not honoured do not come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mypy_extensions import i64

from ferrymq.engine.pairing import PAIRED, is_paired
from ferrymq.engine.receiver import ReceiverLink
from ferrymq.engine.sender import SenderLink
from ferrymq_broker.access.rights import SEND
from ferrymq_broker.connections.attach_properties import (
    EXCLUSIVE,
    EXCLUSIVE_CAPABILITIES,
    NEW_TERMINUS,
    demands_filters,
    is_exclusive,
    priority_name,
    priority_of,
)
from ferrymq_broker.connections.capabilities import offered_by_source, offered_by_target
from ferrymq_broker.connections.consumer_link import ConsumerLink
from ferrymq_broker.connections.delivery_mode import EXACTLY_ONCE, agree
from ferrymq_broker.connections.durable_links.grant import (
    find_source,
    find_target,
    holds,
    lasts,
    remember_source,
    remember_target,
    with_default,
)
from ferrymq_broker.connections.durable_links.source import SourceTerminus
from ferrymq_broker.connections.durable_links.target import TargetTerminus
from ferrymq_broker.connections.dynamic_nodes import (
    create_dynamic,
    node_properties,
    withdraw_creation,
)
from ferrymq_broker.connections.node_capabilities import add_missing, check_kind
from ferrymq_broker.connections.outcomes import (
    ACCEPTED,
    ACCEPTED_SYMBOL,
    RELEASED,
    SUPPORTED_OUTCOMES,
    is_terminal,
)
from ferrymq_broker.connections.permissions import (
    may_recall,
    meant_by,
    reading_right,
    require_dynamic,
    require_source,
    require_subscription,
    require_target,
)
from ferrymq_broker.connections.producer_link import ProducerLink
from ferrymq_broker.connections.terminus_checks import check_source, check_target
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.parse import parse_filters
from ferrymq_broker.nodes.link_terms import Party, SourceTerms, TargetTerms
from ferrymq_broker.nodes.node import PART
from ferrymq_broker.nodes.topics.find_durable_source import find_durable_source
from ferrymq_types.messaging import (
    Source,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from ferrymq_types.transport import ReceiverSettleMode

if TYPE_CHECKING:
    from ferrymq.engine.link import Link
    from ferrymq_broker.connections.handler import ConnectionHandler
    from ferrymq_broker.nodes.node import Node
    from ferrymq_types.transport import Attach
    from ferrymq_types.unions import Outcome


# -- links on which the broker sends -----------------------------------------------------------


def attach_outgoing(handler: ConnectionHandler, link: SenderLink) -> ConsumerLink:
    """Accept a link that wants messages. Raises `BrokerError` if it cannot have them."""
    attach = link.remote_attach
    asked = None if attach is None else attach.source
    if asked is None:
        asked = find_durable_source(
            handler.client.space, handler.client.user, handler.client.container_id, link.name
        )
        if asked is None:
            asked = find_source(handler, link)
        if asked is not None and not may_recall(handler.client, asked):
            asked = None
    if attach is None or asked is None:
        raise BrokerError("amqp:not-found", "the source is missing, and the link has had none")
    check_source(asked)
    node, part, made = _source_node(handler, link, asked)
    try:
        terms = _source_terms(handler, link, attach, asked, part)
        fitting = check_kind(node, terms.capabilities)
        require_subscription(handler.client, node, terms)
        outcome = asked.default_outcome if is_terminal(asked.default_outcome) else None
        lasting = holds(node, asked) and lasts(asked)
        mode = agree(link, terms.properties, outcome, terms.granted_properties, lasting)
        address = f"{node.address}{PART}{part}" if part else node.address
        copies = terms.distribution_mode == "copy"
        right = reading_right(handler.client.space, address, copies)
        _take_over(handler, link, node, address, right)
        source_node = node.open_source(terms)
    except BaseException:
        withdraw_creation(handler, link, node if made else None)
        raise
    memory: SourceTerminus | None = None
    try:
        _expect_granted(node, terms)
        add_missing(terms.granted_capabilities, fitting)
        known = handler.broker.termini.find(handler.client.link_key(link))
        memory = remember_source(handler, link, asked, node, source_node, terms, outcome, mode)
        if NEW_TERMINUS in terms.properties:
            fresh = memory is not None and memory is not known
            terms.granted_properties[NEW_TERMINUS] = terms.made or (source_node is node and fresh)
        unsettled = {} if memory is None else memory.resume(link)
        _accept_outgoing(handler, link, attach, asked, node, terms, outcome)
    except BaseException:
        if memory is not None:
            memory.leave(terms.party.session, handler.client.id, True)
        node.close_source(terms, False)
        withdraw_creation(handler, link, node if made else None)
        raise
    agreed = asked.outcomes or None
    endpoint = ConsumerLink(link, handler, node, source_node, terms, outcome, agreed)
    node.link_opened()
    source_node.subscribe(endpoint)
    if memory is not None:
        if isinstance(link.source, Source):
            memory.told = with_default(link.source, outcome)
        memory.keep()
        if not endpoint.remember(memory, unsettled):
            endpoint.refuse("amqp:not-allowed", "an unsettled delivery has no agreed outcome")
    return endpoint


def _source_node(
    handler: ConnectionHandler, link: SenderLink, asked: Source
) -> tuple[Node, str, bool]:
    """Find the node, the part of it that is meant, and whether the node was made for this attach.

    A dynamic node does not count as such: it is the link's.
    """
    capabilities = asked.capabilities or []
    if asked.dynamic:
        require_dynamic(handler.client)
        made = create_dynamic(handler, link, asked.dynamic_node_properties, capabilities)
        return made, "", False
    named = asked.address
    if named is None:
        raise BrokerError("amqp:invalid-field", "the source has no address and is not dynamic")
    address = meant_by(handler.client, named)
    require_source(handler.client, address, named, asked.distribution_mode == "copy", capabilities)
    return _resolve(handler, address, capabilities)


def _resolve(
    handler: ConnectionHandler, address: str, capabilities: Sequence[str]
) -> tuple[Node, str, bool]:
    """Find or make the node of an address: the node, the part, and whether it was made."""
    nodes = handler.client.space.nodes
    count = len(nodes)
    node, part = handler.client.space.resolve(address, capabilities, handler.client.access)
    return node, part, len(nodes) > count


def _source_terms(
    handler: ConnectionHandler, link: SenderLink, attach: Attach, asked: Source, part: str
) -> SourceTerms:
    properties = {} if attach.properties is None else dict(attach.properties)
    filters = parse_filters(asked.filter, handler.client.id)
    terms = SourceTerms(party_of(handler, link), link.name, part, filters)
    terms.distribution_mode = asked.distribution_mode
    terms.durable = asked.durable.value
    terms.expiry_policy = asked.expiry_policy.value
    terms.timeout = asked.timeout
    terms.capabilities = list(asked.capabilities or [])
    terms.properties = properties
    terms.priority = priority_of(properties)
    terms.exclusive = is_exclusive(properties, terms.capabilities)
    terms.paired = is_paired(properties)
    terms.max_message_size = attach.max_message_size or 0
    target = attach.target
    if isinstance(target, Target):
        terms.target_address = target.address
    return terms


def _expect_granted(node: Node, terms: SourceTerms) -> None:
    """Raise `BrokerError` if a condition of the client's has not been granted.

    A filter is one only if the client says so: otherwise the answer shows which are in place, and
    the client decides (AMQP 1.0 §3.5.3).
    """
    asked = terms.distribution_mode
    if asked is not None and asked != terms.granted_mode:
        raise BrokerError(
            "amqp:not-implemented",
            f"{node.address[:200]!r} distributes by {terms.granted_mode}, not by {asked[:100]}",
        )
    if demands_filters(terms.properties) and terms.filters.refused:
        names = ", ".join(repr(name[:100]) for name in terms.filters.refused)
        raise BrokerError(
            "amqp:not-implemented", f"{node.address[:200]!r} cannot filter by {names}"
        )
    if terms.exclusive and not terms.granted_exclusive:
        raise BrokerError(
            "amqp:not-implemented", f"nobody can have {node.address[:200]!r} to himself"
        )
    _expect_pair(node, terms.paired, terms.granted_properties)


def _accept_outgoing(
    handler: ConnectionHandler,
    link: SenderLink,
    attach: Attach,
    asked: Source,
    node: Node,
    terms: SourceTerms,
    default_outcome: Outcome | None,
) -> None:
    granted = terms.granted_properties
    if terms.granted_exclusive:
        if EXCLUSIVE in terms.properties:
            granted[EXCLUSIVE] = True
        add_missing(
            terms.granted_capabilities,
            [name for name in terms.capabilities if name in EXCLUSIVE_CAPABILITIES],
        )
    name = priority_name(terms.properties)
    if name and terms.granted_priority == terms.priority:
        granted[name] = terms.properties[name]
    source = Source(
        address=node.address if asked.dynamic else asked.address,
        durable=TerminusDurability(terms.granted_durable),
        expiry_policy=TerminusExpiryPolicy(terms.granted_expiry_policy),
        timeout=terms.granted_timeout,
        dynamic=asked.dynamic,
        dynamic_node_properties=(
            node_properties(node, asked.dynamic_node_properties) if asked.dynamic else None
        ),
        distribution_mode=terms.granted_mode,
        filter=terms.filters.granted or None,
        default_outcome=_applicable(link, default_outcome),
        # Without any the default outcome is that of all messages (AMQP 1.0 §3.5.3).
        outcomes=asked.outcomes or (list(SUPPORTED_OUTCOMES) if default_outcome is None else None),
        capabilities=terms.granted_capabilities or None,
    )
    link.accept(
        source=source,
        properties=granted or None,
        offered_capabilities=offered_by_source(node, attach.desired_capabilities),
        max_message_size=handler.max_message_size,
    )


def _applicable(link: SenderLink, asked: Outcome | None) -> Outcome:
    """The outcome of deliveries that are settled, or end in good order, without one."""
    if asked is not None:
        return asked
    return ACCEPTED if link.always_settled else RELEASED


# -- links on which the broker receives --------------------------------------------------------


def attach_incoming(handler: ConnectionHandler, link: ReceiverLink) -> ProducerLink:
    """Accept a link that brings messages. Raises `BrokerError` if nobody takes them."""
    attach = link.remote_attach
    asked = None if attach is None else attach.target
    if asked is None:
        asked = find_target(handler, link)
        if asked is not None and not may_recall(handler.client, asked):
            asked = None
    if attach is None or asked is None:
        raise BrokerError("amqp:invalid-field", "attach of a sender without a target")
    if not isinstance(asked, Target):
        raise BrokerError("amqp:invalid-field", "the target is no node")
    check_target(asked)
    outcomes = _usable_outcomes(attach.source)
    properties = {} if attach.properties is None else dict(attach.properties)
    node, part, address, made = _target_node(handler, link, asked)
    terms = TargetTerms(party_of(handler, link), link.name, part)
    terms.capabilities = list(asked.capabilities or [])
    terms.properties = properties
    terms.paired = is_paired(properties)
    terms.source_address = None if attach.source is None else attach.source.address
    memory: TargetTerminus | None = None
    try:
        fitting = [] if node is None else check_kind(node, terms.capabilities)
        mode = agree(link, properties, None, terms.granted_properties, True)
        _take_over(handler, link, node, address, SEND if address else 0)
        target_node = None if node is None else node.open_target(terms)
        _expect_pair(node, terms.paired, terms.granted_properties)
        add_missing(terms.granted_capabilities, fitting)
        known = handler.broker.termini.find(handler.client.link_key(link))
        memory = remember_target(handler, link, asked, node, address, mode)
        if NEW_TERMINUS in properties:
            terms.granted_properties[NEW_TERMINUS] = memory is not None and memory is not known
        if memory is None and mode != EXACTLY_ONCE:
            # The senders of Azure's SDKs ask for second, and never settle.
            link.agree_settle_modes(link.snd_settle_mode, ReceiverSettleMode.FIRST)
            # Nothing is ever found by its tag here, and Proton C++ repeats tags.
            link.unique_tags = False
        _accept_incoming(handler, link, attach, asked, node, terms, memory)
    except BaseException:
        if memory is not None:
            memory.leave(terms.party.session, handler.client.id, True)
        withdraw_creation(handler, link, node if made else None)
        raise
    endpoint = ProducerLink(link, handler, target_node, outcomes, address)
    seen_tags = handler.broker.seen_tags
    if memory is None and mode == EXACTLY_ONCE:
        endpoint.remember_tags(
            seen_tags.open(handler.client, link, attach.unsettled, address, handler.changes)
        )
    else:
        # As it is attached now it is another link than the one whose tags these were.
        seen_tags.forget(handler.client, link, address)
    if memory is not None:
        if isinstance(link.target, Target):
            memory.told = link.target
        memory.keep()
        endpoint.remember(memory, terms.party.session)
    if target_node is not None:
        target_node.producers[endpoint] = None
        target_node.link_opened()
    endpoint.supply()
    return endpoint


def _target_node(
    handler: ConnectionHandler, link: ReceiverLink, asked: Target
) -> tuple[Node | None, str, str, bool]:
    """The node, the part of it that is meant, the address of both with aliases followed, and
    whether the node was made for this attach. A dynamic node does not count as such."""
    capabilities = asked.capabilities or []
    if asked.dynamic:
        require_dynamic(handler.client)
        made = create_dynamic(handler, link, asked.dynamic_node_properties, capabilities)
        return made, "", made.address, False
    named = asked.address
    if named is None:
        # Each message names its own (Anonymous Terminus for Message Routing 1.0).
        return None, "", "", False
    address = meant_by(handler.client, named)
    require_target(handler.client, address, named)
    node, part, fresh = _resolve(handler, address, capabilities)
    return node, part, address, fresh


def _usable_outcomes(source: Source | None) -> list[str] | None:
    """The outcomes the broker may state, None for all. Raises `BrokerError`."""
    outcomes = None if source is None else source.outcomes
    if not outcomes:
        return None
    if ACCEPTED_SYMBOL not in outcomes:
        raise BrokerError(
            "amqp:not-implemented",
            f"the outcomes of the source leave out {ACCEPTED_SYMBOL}: "
            f"the broker could not say that it has taken a message",
        )
    return outcomes


def _accept_incoming(
    handler: ConnectionHandler,
    link: ReceiverLink,
    attach: Attach,
    asked: Target,
    node: Node | None,
    terms: TargetTerms,
    memory: TargetTerminus | None,
) -> None:
    dynamic = node if asked.dynamic else None
    target = Target(
        address=asked.address if dynamic is None else dynamic.address,
        durable=TerminusDurability(0 if memory is None else memory.durable),
        expiry_policy=TerminusExpiryPolicy(
            "link-detach" if memory is None else memory.expiry_policy
        ),
        timeout=0 if memory is None else memory.timeout,
        dynamic=asked.dynamic,
        dynamic_node_properties=(
            None if dynamic is None else node_properties(dynamic, asked.dynamic_node_properties)
        ),
        capabilities=terms.granted_capabilities or None,
    )
    link.accept(
        source=attach.source,
        target=target,
        properties=terms.granted_properties or None,
        offered_capabilities=offered_by_target(node, attach.desired_capabilities),
        max_message_size=handler.max_message_size,
    )


# -- both --------------------------------------------------------------------------------------


def party_of(handler: ConnectionHandler, link: Link) -> Party:
    """Who is at the other end of the link."""
    return handler.client.party(handler.session_id(link.session))


def _take_over(
    handler: ConnectionHandler, link: Link, node: Node | None, address: str, right: i64
) -> None:
    """End the link that has had the name (AMQP 1.0 §2.6.1): what this one is to have, for which it
    takes `right` at `address`, it must have let go of. Raises `BrokerError` if the node was there
    for that link only."""
    handler.broker.link_names.take(handler, link, address, right)
    if node is not None and node.deleted:
        raise BrokerError("amqp:not-found", f"{node.address[:200]!r} has gone with its link")


def _expect_pair(node: Node | None, paired: bool, granted: dict[str, object]) -> None:
    """Raise `BrokerError` if the link is to be half of a pair and the node makes no responses
    (Link Pairing 1.0 §2.2.1)."""
    if paired and granted.get(PAIRED) is not True:
        name = "the anonymous terminus" if node is None else repr(node.address[:200])
        raise BrokerError("amqp:not-implemented", f"{name} does not support link pairing")
