"""Room for the response to a request, kept from before the request is carried out.

The size of the response is not known at that time. Room is kept for the shortest response that says
how the request ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.node import BOUNDLESS

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.node import Node


@final
class ResponseRoom:
    """Room for one response at a `node`, which counts it with its promised credit."""

    __slots__ = ("node", "_least", "_holders", "_promised")

    def __init__(self, node: Node) -> None:
        self.node: Node = node
        # The message for which room is kept; None if the node only counts messages.
        self._least: BrokerMessage | None = None
        self._holders: list[Node] = []
        self._promised = False

    def keep(self) -> None:
        """Count the response from now on."""
        self.node.promised += 1
        self._promised = True

    def keep_for(self, least: BrokerMessage) -> None:
        """Keep room for this message. Raises `BrokerError` if there is none."""
        node = self.node
        room: i64 = node.room()
        if room != BOUNDLESS and room <= node.pledged():
            raise BrokerError(
                "amqp:resource-limit-exceeded",
                f"there is no room for a response at {node.address[:200]!r}; consume the "
                "responses that wait there",
            )
        self._least = least
        refusal = node.reserve(least, self._holders)
        if refusal is not None:
            self.free()
            raise BrokerError(
                refusal.condition,
                f"there is no room for a response: {refusal.description}",
                refusal.info,
            )
        if room != BOUNDLESS:
            self.keep()

    def free(self) -> None:
        """Free the room: the response is sent now or never."""
        least = self._least
        if least is not None:
            for holder in self._holders:
                holder.unreserve(least)
            self._holders = []
        if self._promised:
            self._promised = False
            self.node.promised -= 1
            self.node.regain_room()
