"""The steps of an attach for a link on which the broker receives (AMQP 1.0 §3.5.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq.batches import BATCHES
from ferrymq.engine.pairing import is_paired
from ferrymq_broker.connections.attach import LinkAttach
from ferrymq_broker.connections.attach_properties import FORWARD_TO, NEW_TERMINUS, forward_to_of
from ferrymq_broker.connections.capabilities import offered_by_target
from ferrymq_broker.connections.delivery_mode import EXACTLY_ONCE, agree
from ferrymq_broker.connections.durable_links.grant import find_target, remember_target
from ferrymq_broker.connections.dynamic_nodes import DynamicNodes, node_properties, told
from ferrymq_broker.connections.node_capabilities import add_missing, check_kind
from ferrymq_broker.connections.outcomes import ACCEPTED_SYMBOL
from ferrymq_broker.connections.permissions import (
    may_recall,
    meant_by,
    require_dynamic,
    require_something,
    require_target,
)
from ferrymq_broker.connections.producer_link import ProducerLink
from ferrymq_broker.connections.terminus_checks import check_target
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.link_terms import TargetTerms
from ferrymq_broker.nodes.queues.relay import relay_through
from ferrymq_broker.nodes.streams.partition import StreamPartition
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.values.rights import SEND
from ferrymq_types.messaging import Source, Target, TerminusDurability, TerminusExpiryPolicy
from ferrymq_types.transport import ReceiverSettleMode

if TYPE_CHECKING:
    from ferrymq.engine.receiver import ReceiverLink
    from ferrymq_broker.connections.durable_links.target import TargetTerminus
    from ferrymq_broker.connections.link_names import LinkHolder
    from ferrymq_broker.connections.parts import ConnectionParts
    from ferrymq_broker.nodes.node import Node


@final
class TargetAttach(LinkAttach):
    """The attach of a client that sends messages.

    `asked` is the requested target, `meant` the same in the broker's terms, with the link
    `properties`: they differ for clients of another broker. `part` is the part of the node in the
    address, `target` is the node that the messages go to, None for the anonymous terminus.
    `outcomes` are those that the client understands, None for all. `memory` is the terminus that
    outlives the link, if there is one. `producer` is the link, once it has begun.
    """

    __slots__ = (
        "receiver",
        "asked",
        "meant",
        "properties",
        "outcomes",
        "part",
        "target",
        "terms",
        "mode",
        "memory",
        "producer",
        "_batches",
        "_fitting",
        "_forward_to",
        "_destination",
    )

    asked: Target
    meant: Target
    terms: TargetTerms
    producer: ProducerLink

    def __init__(
        self,
        parts: ConnectionParts,
        holder: LinkHolder,
        dynamic_nodes: DynamicNodes,
        link: ReceiverLink,
        session: i64,
    ) -> None:
        super().__init__(parts, holder, dynamic_nodes, link, session)
        self.receiver: ReceiverLink = link
        self.properties: dict[str, object] = {}
        self.outcomes: list[str] | None = None
        self.part: str = ""
        self.target: Node | None = None
        self.mode: str = ""
        self.memory: TargetTerminus | None = None
        self._batches = False
        # The requested capabilities that the kind of the node has.
        self._fitting: list[str] = []
        # The address that the target sends the messages on to, as the client names it, and its
        # node.
        self._forward_to = ""
        self._destination: Node | None = None

    def read_request(self) -> None:
        """Find the target: that of the attach, or the one that the link had before."""
        asked = self.request.target
        if asked is None:
            asked = find_target(self.parts, self.link)
            if asked is not None and not may_recall(self.parts.client, asked):
                asked = None
        if asked is None:
            raise BrokerError("amqp:invalid-field", "the attach of a sender has no target")
        if not isinstance(asked, Target):
            raise BrokerError(
                "amqp:invalid-field", "the target is neither a node nor a coordinator"
            )
        self.asked = asked
        properties = self.request.properties
        if properties is not None:
            self.properties = dict(properties)
        personality = self.parts.client.space.personality
        if personality is not None:
            asked = personality.target(asked, self.properties)
        check_target(asked)
        self.meant = asked
        self._forward_to = forward_to_of(self.properties)
        self.outcomes = _usable_outcomes(self.request.source)

    def authorise(self) -> None:
        """Check that the client may send to the address, or create a node.

        With the anonymous terminus each message names its own address (Anonymous Terminus for
        Message Routing 1.0), which is checked when the message comes.
        """
        named = self.asked.address
        client = self.parts.client
        if self.meant.dynamic:
            require_dynamic(client)
        elif named is not None:
            self.address = meant_by(client, named)
            require_target(client, self.address, named)
        else:
            require_something(client)
        if self._forward_to:
            beyond = self._forward_to
            require_target(client, meant_by(client, beyond), beyond)

    def resolve_node(self) -> None:
        """Find or create the named node, or create a dynamic one."""
        asked = self.meant
        capabilities = asked.capabilities or []
        if asked.dynamic:
            node = self.make_dynamic(asked.dynamic_node_properties, capabilities)
            self.node = node
            self.address = node.address
        elif self.asked.address is not None:
            self.node, self.part = self.find_node(self.address, capabilities)
        if self._forward_to:
            client = self.parts.client
            address = meant_by(client, self._forward_to)
            self._destination = client.space.target(address, client.access)

    def negotiate_terms(self) -> None:
        """Make the terms, and agree on the delivery mode."""
        attach = self.request
        terms = TargetTerms(self.parts.client.party(self.session), self.link.name, self.part)
        terms.asked = self.asked
        if attach.properties is not None:
            terms.asked_properties = attach.properties
        terms.capabilities = list(self.meant.capabilities or [])
        terms.properties = self.properties
        terms.paired = is_paired(terms.properties)
        terms.source_address = None if attach.source is None else attach.source.address
        self.terms = terms
        node = self.node
        self._fitting = [] if node is None else check_kind(node, terms.capabilities)
        self.mode = agree(self.link, terms.properties, None, terms.granted_properties, True)
        self.right = SEND if self.address else 0

    def open_node(self) -> None:
        """Ask the node for terms, and check those that the client insists on."""
        node = self.node
        terms = self.terms
        if node is not None:
            self.target = node.open_target(terms)
        destination = self._destination
        if destination is not None:
            if self.target is None:
                raise BrokerError(
                    "amqp:not-implemented", "the anonymous terminus does not send messages on"
                )
            self.target = relay_through(self.target, destination)
            terms.granted_properties[FORWARD_TO] = self._forward_to
        self.expect_pair(terms.paired, terms.granted_properties)
        add_missing(terms.granted_capabilities, self._fitting)

    def restore_terminus(self) -> None:
        """Find or create the terminus that outlives the link, and compare unsettled deliveries."""
        parts = self.parts
        link = self.receiver
        terms = self.terms
        known = parts.shared.termini.find(parts.client.link_key(link))
        memory = remember_target(parts, link, self.meant, self.node, self.address, self.mode)
        self.memory = memory
        self.on_failure(self._leave_terminus)
        if NEW_TERMINUS in terms.properties:
            terms.granted_properties[NEW_TERMINUS] = memory is not None and memory is not known
        if memory is None and self.mode != EXACTLY_ONCE:
            # The senders of Azure's SDKs ask for receiver-settle-mode second and never settle.
            link.agree_settle_modes(link.snd_settle_mode, ReceiverSettleMode.FIRST)
            # Deliveries of such a link are never looked up by tag, and Proton C++ repeats tags.
            link.unique_tags = False
            personality = parts.client.space.personality
            link.rejects_large = personality is not None and personality.rejects_large
            self._batches = terms.properties.get(BATCHES) is True and self._may_batch()
            if self._batches:
                terms.granted_properties[BATCHES] = True

    def _may_batch(self) -> bool:
        """Return whether the client may send batches of messages on the link.

        A stream takes any number of messages at once. Messages of other nodes, and those that are
        changed, traced or counted against a rate limit, have to come one by one.
        """
        client = self.parts.client
        return (
            isinstance(self.target, Stream | StreamPartition)
            and client.space.personality is None
            and client.throttle is None
            and self.parts.shared.tracer is None
        )

    def _leave_terminus(self) -> None:
        memory = self.memory
        if memory is not None:
            memory.leave(self.session, self.parts.client.id, True)

    def answer(self) -> None:
        """Answer with the granted target."""
        asked = self.meant
        memory = self.memory
        dynamic = self.node if asked.dynamic else None
        personality = self.parts.client.space.personality
        if personality is not None:
            personality.target_granted(self.terms)
        target = Target(
            address=self.asked.address if dynamic is None else told(dynamic),
            durable=TerminusDurability(0 if memory is None else memory.durable),
            expiry_policy=TerminusExpiryPolicy(
                "link-detach" if memory is None else memory.expiry_policy
            ),
            timeout=0 if memory is None else memory.timeout,
            dynamic=asked.dynamic,
            dynamic_node_properties=(
                None if dynamic is None else node_properties(dynamic, asked.dynamic_node_properties)
            ),
            capabilities=self.terms.granted_capabilities or None,
        )
        self.link.accept(
            source=self.request.source,
            target=target,
            properties=self.terms.granted_properties or None,
            offered_capabilities=offered_by_target(self.node, self.request.desired_capabilities),
            max_message_size=self.parts.max_message_size,
        )

    def begin(self) -> None:
        """Publish to the node from now on, and give the client credit."""
        parts = self.parts
        link = self.receiver
        memory = self.memory
        target = self.target
        address = self.address
        producer = ProducerLink(link, parts, target, self.outcomes, address)
        self.producer = producer
        producer.batches = self._batches
        seen_tags = parts.shared.seen_tags
        if memory is None and self.mode == EXACTLY_ONCE:
            changes = parts.shared.agenda.changes
            unsettled = self.request.unsettled
            producer.remember_tags(seen_tags.open(parts.client, link, unsettled, address, changes))
        else:
            # The link is attached in another mode: remembered tags belong to the earlier link.
            seen_tags.forget(parts.client, link, address)
        if memory is not None:
            if isinstance(link.target, Target):
                memory.told = link.target
            memory.keep()
            producer.remember(memory, self.session)
        if target is not None:
            target.producers[producer] = None
            target.link_opened()
        producer.supply()


def _usable_outcomes(source: Source | None) -> list[str] | None:
    """Return the outcomes that the broker may use, None for all. Raises `BrokerError`."""
    outcomes = None if source is None else source.outcomes
    if not outcomes:
        return None
    if ACCEPTED_SYMBOL not in outcomes:
        raise BrokerError(
            "amqp:not-implemented",
            f"the outcomes of the source must include {ACCEPTED_SYMBOL}: without it the broker "
            "cannot accept a message",
        )
    return outcomes
