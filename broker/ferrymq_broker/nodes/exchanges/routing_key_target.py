"""The target for producers that name a routing key in the address, ``EXCHANGE::KEY``."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq_broker.nodes.backpressure import BackpressureGroup
from ferrymq_broker.nodes.node import Node, Refusal
from ferrymq_broker.values.names import PART

if TYPE_CHECKING:
    from ferrymq_broker.nodes.exchanges.exchange import Exchange
    from ferrymq_broker.nodes.message import BrokerMessage


@final
class RoutingKeyTarget(Node):
    """An exchange with a fixed routing key for every message that comes in here."""

    __slots__ = ("exchange", "key", "_backpressures")

    def __init__(self, exchange: Exchange, key: str) -> None:
        super().__init__(f"{exchange.address}{PART}{key}", exchange.space)
        self.exchange: Exchange = exchange
        self.key: str = key
        self._backpressures = BackpressureGroup(self)

    @property
    def kind(self) -> str:
        """``exchange``."""
        return "exchange"

    def publish(self, message: BrokerMessage) -> Refusal | None:
        """Route the message by this key, and by further keys that it has."""
        return self.exchange.route_by_all(message, self.key)

    def keeps(self, message: BrokerMessage) -> bool:
        """See `Exchange.keeps_by_all`."""
        return self.exchange.keeps_by_all(message, self.key)

    def reserve(self, message: BrokerMessage, holders: list[Node]) -> Refusal | None:
        """Keep room for a message with this key."""
        return self.exchange.reserve_by_all(message, self.key, holders)

    def room(self) -> i64:
        """Return the room of the fullest node that a message could go to."""
        nodes = self.exchange.reachable(self.key)
        # A target without a link was made for a single message; nothing would remove its
        # backpressure.
        return (
            self._backpressures.room(nodes)
            if self.links > 0
            else self._backpressures.spare_room(nodes)
        )

    def regain_room(self) -> None:
        """Tell the nodes behind, where producers that publish to them in other ways may wait."""
        super().regain_room()
        self._backpressures.regain_room()

    def link_opened(self) -> None:
        """Count a link, for the exchange too."""
        super().link_opened()
        self.exchange.entrances[self] = None
        self.exchange.link_opened()

    def link_closed(self) -> None:
        """Count a link that is gone, for the exchange too."""
        super().link_closed()
        if self.links == 0:
            self.exchange.entrances.pop(self, None)
            self._backpressures.withdraw()
        self.exchange.link_closed()
