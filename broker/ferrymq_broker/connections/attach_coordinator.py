"""The steps of an attach for a control link (AMQP 1.0 §4.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq.engine.pairing import is_paired
from ferrymq_broker.connections.attach import LinkAttach
from ferrymq_broker.connections.delivery_mode import agree_control
from ferrymq_broker.connections.durable_links.grant import forget_target
from ferrymq_broker.connections.dynamic_nodes import DynamicNodes
from ferrymq_broker.connections.outcomes import REJECTED_SYMBOL
from ferrymq_broker.connections.permissions import require_something
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.transactions.coordinator import Coordinator
from ferrymq_types.transactions import Coordinator as CoordinatorTarget
from ferrymq_types.transport import ReceiverSettleMode

if TYPE_CHECKING:
    from ferrymq.engine.receiver import ReceiverLink
    from ferrymq_broker.connections.link_names import LinkHolder
    from ferrymq_broker.connections.parts import ConnectionParts

# The capabilities of the coordinator (AMQP 1.0 §4.5.7).
CAPABILITIES: Final = (
    "amqp:local-transactions",
    "amqp:multi-txns-per-ssn",
    "amqp:multi-ssns-per-txn",
)

_MAX_SIZE: Final = 65_536


@final
class CoordinatorAttach(LinkAttach):
    """The attach of a client that wants to declare transactions.

    The answer has the capabilities of the coordinator, whatever the client asked for. `coordinator`
    is the link, once it has begun.
    """

    __slots__ = ("receiver", "coordinator", "_granted")

    coordinator: Coordinator

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
        self._granted: dict[str, object] = {}

    def read_request(self) -> None:
        """Check that the link is in no link pair (Link Pairing 1.0 §2.2.1): a coordinator sends
        outcomes, not responses."""
        if is_paired(self.request.properties):
            raise BrokerError(
                "amqp:not-implemented", "the coordinator does not support link pairing"
            )

    def authorise(self) -> None:
        """Check that the client may do anything at all."""
        require_something(self.parts.client)

    def negotiate_terms(self) -> None:
        """Agree on the delivery mode and on settle modes."""
        properties = self.request.properties
        agree_control(self.link, {} if properties is None else properties, self._granted)
        # The coordinator remembers no outcome until its settlement.
        self.link.agree_settle_modes(self.link.snd_settle_mode, ReceiverSettleMode.FIRST)

    def answer(self) -> None:
        """Answer with the capabilities of the coordinator."""
        size: i64 = _MAX_SIZE
        if 0 < self.parts.max_message_size < _MAX_SIZE:
            size = self.parts.max_message_size
        self.link.accept(
            source=self.request.source,
            target=CoordinatorTarget(capabilities=list(CAPABILITIES)),
            properties=self._granted or None,
            max_message_size=size,
        )

    def begin(self) -> None:
        """Begin the link: the client may declare transactions."""
        source = self.request.source
        outcomes = None if source is None else source.outcomes
        rejects = not outcomes or REJECTED_SYMBOL in outcomes
        coordinator = Coordinator(self.receiver, self.parts, rejects)
        self.coordinator = coordinator
        coordinator.supply()
        forget_target(self.parts, self.receiver)
