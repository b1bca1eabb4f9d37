"""The steps of an attach for a link on which the broker sends (AMQP 1.0 §3.5.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq.engine.pairing import is_paired
from ferrymq_broker.connections.attach import LinkAttach
from ferrymq_broker.connections.attach_properties import (
    EXCLUSIVE,
    EXCLUSIVE_CAPABILITIES,
    NEW_TERMINUS,
    demands_filters,
    is_exclusive,
    patience_of,
    priority_name,
    priority_of,
)
from ferrymq_broker.connections.capabilities import offered_by_source
from ferrymq_broker.connections.consumer_link import ConsumerLink
from ferrymq_broker.connections.delivery_mode import agree
from ferrymq_broker.connections.durable_links.grant import (
    find_source,
    holds,
    lasts,
    remember_source,
    with_default,
)
from ferrymq_broker.connections.dynamic_nodes import DynamicNodes, node_properties, told
from ferrymq_broker.connections.node_capabilities import add_missing, check_kind
from ferrymq_broker.connections.outcomes import (
    ACCEPTED,
    RELEASED,
    SUPPORTED_OUTCOMES,
    is_terminal,
)
from ferrymq_broker.connections.permissions import (
    judged_at,
    may_recall,
    meant_by,
    reading_right,
    require_dynamic,
    require_source,
    require_subscription,
)
from ferrymq_broker.connections.terminus_checks import check_source
from ferrymq_broker.connections.traced_links import TracedConsumerLink
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.parse import parse_filters
from ferrymq_broker.nodes.link_terms import SourceTerms
from ferrymq_broker.nodes.node import Node
from ferrymq_broker.nodes.queues.lease_terms import LEASE_PROPERTY
from ferrymq_broker.nodes.topics.find_durable_source import find_durable_source
from ferrymq_broker.values.names import PART
from ferrymq_types.messaging import Source, Target, TerminusDurability, TerminusExpiryPolicy

if TYPE_CHECKING:
    from ferrymq.engine.delivery import OutgoingDelivery
    from ferrymq.engine.sender import SenderLink
    from ferrymq_broker.connections.durable_links.source import SourceTerminus
    from ferrymq_broker.connections.link_names import LinkHolder
    from ferrymq_broker.connections.parts import ConnectionParts
    from ferrymq_types.unions import Outcome


@final
class SourceAttach(LinkAttach):
    """The attach of a client that wants messages.

    `asked` is the requested source, `meant` the same in the broker's terms, with the link
    `properties`: they differ for clients of another broker. `part` is the part of the node in the
    address, `source` is the node (or a part of it) that the messages come from. `default_outcome`
    is the client's. `memory` is the terminus that outlives the link, if there is one, and
    `unsettled` has its deliveries over earlier links. `consumer` is the link, once it has begun.
    """

    __slots__ = (
        "sender",
        "asked",
        "meant",
        "properties",
        "part",
        "source",
        "terms",
        "default_outcome",
        "mode",
        "memory",
        "unsettled",
        "consumer",
        "_named",
        "_fitting",
    )

    asked: Source
    meant: Source
    source: Node
    terms: SourceTerms
    consumer: ConsumerLink

    def __init__(
        self,
        parts: ConnectionParts,
        holder: LinkHolder,
        dynamic_nodes: DynamicNodes,
        link: SenderLink,
        session: i64,
    ) -> None:
        super().__init__(parts, holder, dynamic_nodes, link, session)
        self.sender: SenderLink = link
        self.properties: dict[str, object] = {}
        self.part: str = ""
        self.default_outcome: Outcome | None = None
        self.mode: str = ""
        self.memory: SourceTerminus | None = None
        self.unsettled: dict[bytes, OutgoingDelivery] = {}
        # The address as the client names it.
        self._named = ""
        # The requested capabilities that the kind of the node has.
        self._fitting: list[str] = []

    def read_request(self) -> None:
        """Find the source: that of the attach, or the one that the link had before."""
        client = self.parts.client
        personality = client.space.personality
        asked = self.request.source
        if asked is None:
            asked = find_durable_source(
                client.space, client.user, client.container_id, self.link.name
            )
            if asked is not None and personality is not None:
                asked.address = personality.named(asked.address or "")
            if asked is None:
                asked = find_source(self.parts, self.link)
            if asked is not None and not may_recall(client, asked):
                asked = None
        if asked is None:
            raise BrokerError(
                "amqp:not-found",
                "the attach has no source, and the broker knows no earlier source of this link",
            )
        self.asked = asked
        properties = self.request.properties
        if properties is not None:
            self.properties = dict(properties)
        if personality is not None:
            for capability in self.request.desired_capabilities or ():
                wanted = personality.desired(capability)
                if wanted:
                    self.properties[wanted] = True
            asked = personality.source(asked, self.properties)
        check_source(asked)
        self.meant = asked

    def authorise(self) -> None:
        """Check that the client may receive from the address, or create a node."""
        asked = self.meant
        client = self.parts.client
        if asked.dynamic:
            require_dynamic(client)
            return
        named = self.asked.address
        if named is None:
            raise BrokerError("amqp:invalid-field", "the source has no address and is not dynamic")
        self._named = named
        self.address = meant_by(client, named)
        copies = asked.distribution_mode == "copy"
        require_source(client, self.address, named, copies, asked.capabilities or [])

    def resolve_node(self) -> None:
        """Find or create the named node, or create a dynamic one."""
        asked = self.meant
        capabilities = asked.capabilities or []
        if asked.dynamic:
            self.node = self.make_dynamic(asked.dynamic_node_properties, capabilities)
            return
        if LEASE_PROPERTY in self.properties and not self.parts.client.space.has(self.address):
            # The queue of a lease exists. A new queue would hide that it was deleted.
            raise BrokerError(
                "amqp:not-found",
                f"there is no queue {self.address[:200]!r}, and therefore no lease",
            )
        self.node, self.part = self.find_node(self.address, capabilities)

    def negotiate_terms(self) -> None:
        """Make the terms, and agree on the delivery mode; check the access rules of a
        subscription."""
        asked = self.meant
        client = self.parts.client
        node = self._node()
        terms = self._make_terms()
        self.terms = terms
        self._fitting = check_kind(node, terms.capabilities)
        require_subscription(client, node, terms)
        outcome = asked.default_outcome
        self.default_outcome = outcome if is_terminal(outcome) else None
        # Deliveries of a session do not outlive the link, because its next owner gets them.
        lasting = holds(node, asked) and lasts(asked) and not terms.filters.session_name
        self.mode = agree(
            self.link, terms.properties, self.default_outcome, terms.granted_properties, lasting
        )
        self.address = f"{node.address}{PART}{self.part}" if self.part else node.address
        copies = terms.distribution_mode == "copy"
        self.right = reading_right(client.space, self.address, copies)
        self.address = judged_at(client.space, self.address)

    def _node(self) -> Node:
        node = self.node
        assert node is not None
        return node

    def _make_terms(self) -> SourceTerms:
        asked = self.meant
        attach = self.request
        client = self.parts.client
        properties = self.properties
        filters = parse_filters(asked.filter, client.id, client.space.position_words)
        terms = SourceTerms(client.party(self.session), self.link.name, self.part, filters)
        terms.distribution_mode = asked.distribution_mode
        terms.durable = asked.durable.value
        terms.expiry_policy = asked.expiry_policy.value
        terms.timeout = asked.timeout
        terms.capabilities = list(asked.capabilities or [])
        terms.properties = properties
        terms.priority = priority_of(properties)
        terms.exclusive = is_exclusive(properties, terms.capabilities)
        terms.paired = is_paired(properties)
        terms.patience = patience_of(properties)
        terms.max_message_size = attach.max_message_size or 0
        target = attach.target
        if isinstance(target, Target):
            terms.target_address = target.address
        terms.asked = self.asked
        if attach.properties is not None:
            terms.asked_properties = attach.properties
        return terms

    def open_node(self) -> None:
        """Ask the node for terms, and check those that the client insists on."""
        node = self._node()
        terms = self.terms
        self.source = node.open_source(terms)
        self.on_failure(self._close_source)
        self._expect_granted(node)
        add_missing(terms.granted_capabilities, self._fitting)

    def _close_source(self) -> None:
        self._node().close_source(self.terms, False)

    def _expect_granted(self, node: Node) -> None:
        """Raise `BrokerError` if a condition of the client has not been granted.

        Filters are a condition only if the client says so: otherwise the answer shows which filters
        are granted, and the client decides (AMQP 1.0 §3.5.3).
        """
        terms = self.terms
        asked = terms.distribution_mode
        if asked is not None and asked != terms.granted_mode:
            raise BrokerError(
                "amqp:not-implemented",
                f"{node.address[:200]!r} has distribution-mode {terms.granted_mode}, not "
                f"{asked[:100]}",
            )
        if demands_filters(terms.properties) and terms.filters.refused:
            names = ", ".join(repr(name[:100]) for name in terms.filters.refused)
            raise BrokerError(
                "amqp:not-implemented",
                f"{node.address[:200]!r} does not support the filters {names}",
            )
        if terms.exclusive and not terms.granted_exclusive:
            raise BrokerError(
                "amqp:not-implemented", f"{node.address[:200]!r} cannot have an exclusive consumer"
            )
        self.expect_pair(terms.paired, terms.granted_properties)

    def claim(self) -> bool:
        """Take the session that the link asks for, or the next free one."""
        if not self.source.claim(self.terms):
            return False
        if self.terms.session:
            self.on_failure(self._unclaim)
        return True

    def _unclaim(self) -> None:
        self.source.unclaim(self.terms)

    def restore_terminus(self) -> None:
        """Find or create the terminus that outlives the link, and compare unsettled deliveries."""
        parts = self.parts
        link = self.sender
        terms = self.terms
        node = self._node()
        known = parts.shared.termini.find(parts.client.link_key(link))
        memory = remember_source(
            parts, link, self.meant, node, self.source, terms, self.default_outcome, self.mode
        )
        self.memory = memory
        self.on_failure(self._leave_terminus)
        if NEW_TERMINUS in terms.properties:
            fresh = memory is not None and memory is not known
            terms.granted_properties[NEW_TERMINUS] = terms.made or (self.source is node and fresh)
        if memory is not None:
            self.unsettled = memory.resume(link)

    def _leave_terminus(self) -> None:
        memory = self.memory
        if memory is not None:
            memory.leave(self.session, self.parts.client.id, True)

    def answer(self) -> None:
        """Answer with the granted source."""
        asked = self.meant
        node = self._node()
        terms = self.terms
        outcome = self.default_outcome
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
        personality = self.parts.client.space.personality
        if personality is not None:
            personality.source_granted(terms)
            granted = terms.granted_properties
        source = Source(
            address=told(node) if asked.dynamic else self.asked.address,
            durable=TerminusDurability(terms.granted_durable),
            expiry_policy=TerminusExpiryPolicy(terms.granted_expiry_policy),
            timeout=terms.granted_timeout,
            dynamic=asked.dynamic,
            dynamic_node_properties=(
                node_properties(node, asked.dynamic_node_properties) if asked.dynamic else None
            ),
            distribution_mode=terms.granted_mode,
            filter=terms.filters.granted or None,
            default_outcome=self._applicable_outcome(),
            # Without outcomes, the default outcome applies to all messages (AMQP 1.0 §3.5.3).
            outcomes=asked.outcomes or (list(SUPPORTED_OUTCOMES) if outcome is None else None),
            capabilities=terms.granted_capabilities or None,
        )
        offered = self._offered(granted)
        self.link.accept(
            source=source,
            properties=granted or None,
            offered_capabilities=offered,
            max_message_size=self.parts.max_message_size,
        )

    def _offered(self, granted: dict[str, object]) -> list[str] | None:
        """Return the capabilities of the link that the client has asked for."""
        desired = self.request.desired_capabilities
        offered = offered_by_source(self._node(), desired)
        personality = self.parts.client.space.personality
        if personality is None or not desired:
            return offered
        more = [
            capability
            for capability in desired
            if granted.pop(personality.desired(capability), False)
        ]
        return [*(offered or ()), *more] or None

    def _applicable_outcome(self) -> Outcome:
        """Return the outcome of deliveries that are settled, or properly ended, without an
        outcome."""
        if self.default_outcome is not None:
            return self.default_outcome
        return ACCEPTED if self.sender.always_settled else RELEASED

    def _consumer(self, outcome: Outcome | None, outcomes: list[str] | None) -> ConsumerLink:
        node, link, parts = self._node(), self.sender, self.parts
        tracer = parts.shared.tracer
        if tracer is None:
            return ConsumerLink(link, parts, node, self.source, self.terms, outcome, outcomes)
        return TracedConsumerLink(
            tracer, link, parts, node, self.source, self.terms, outcome, outcomes
        )

    def begin(self) -> None:
        """Subscribe to the node, and resume the unsettled deliveries."""
        asked = self.meant
        link = self.sender
        node = self._node()
        outcome = self.default_outcome
        consumer = self._consumer(outcome, asked.outcomes or None)
        self.consumer = consumer
        node.link_opened()
        self.source.subscribe(consumer)
        memory = self.memory
        if memory is not None:
            if isinstance(link.source, Source):
                memory.told = with_default(link.source, outcome)
            memory.keep()
            if not consumer.remember(memory, self.unsettled):
                consumer.refuse(
                    "amqp:not-allowed",
                    "an unsettled delivery has an outcome that is not among the outcomes of "
                    "the source",
                )
