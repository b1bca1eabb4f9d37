"""Nodes that are disabled for senders, for receivers, or for both (`send-disabled`,
`receive-disabled`).

Their messages stay. The broker itself still publishes dead letters to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.node import Refusal
from ferrymq_broker.slices import LINK, MESSAGE, SlicedTask, Slices
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.nodes.consumer import Consumer
    from ferrymq_broker.nodes.node import Node, Producer

DISABLED: Final = "ferrymq:disabled"


def sending_disabled(node: Node) -> BrokerError:
    """Return the error for senders of a disabled node."""
    return BrokerError(DISABLED, f"{node.address[:200]!r} is disabled for senders")


def receiving_disabled(node: Node) -> BrokerError:
    """Return the error for receivers of a disabled node."""
    return BrokerError(DISABLED, f"{node.address[:200]!r} is disabled for receivers")


def refusal_of_disabled(node: Node) -> Refusal:
    """Return the refusal of a message for a disabled node."""
    error = sending_disabled(node)
    return Refusal(error.condition, error.description)


def evict_producers(node: Node) -> None:
    """End the links of the senders, in slices."""
    _evict(node, list(node.producers), [], sending_disabled(node))


def evict_consumers(node: Node) -> None:
    """End the links of the receivers, in slices; their messages return."""
    _evict(node, [], node.consumers_of(), receiving_disabled(node))


def _evict(
    node: Node, producers: list[Producer], consumers: list[Consumer], why: BrokerError
) -> None:
    error = Error(condition=why.condition, description=why.description)
    node.agenda.slices.do(_LinkEviction(producers, consumers, error))


@final
class _LinkEviction(SlicedTask):
    """The task that ends the links of a disabled node."""

    __slots__ = ("_producers", "_consumers", "_error")

    def __init__(self, producers: list[Producer], consumers: list[Consumer], error: Error) -> None:
        super().__init__()
        self._producers = producers
        self._consumers = consumers
        self._error = error

    def go_on(self, slices: Slices) -> bool:
        """End as many links as the slice allows."""
        while self._producers:
            if slices.is_spent():
                return False
            slices.spend(LINK)
            self._producers.pop().evict(self._error)
        while self._consumers:
            if slices.is_spent():
                return False
            consumer = self._consumers.pop()
            slices.spend(LINK + consumer.held * MESSAGE)
            consumer.evict(self._error)
        return True
