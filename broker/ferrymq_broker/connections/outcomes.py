"""Outcomes of deliveries, and their effect on a message in a queue (AMQP 1.0 §3.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeGuard

from ferrymq_broker.nodes.consumer import Consumer
from ferrymq_broker.nodes.entry import Entry
from ferrymq_broker.nodes.node import Node
from ferrymq_broker.nodes.queues.locks import LOCK_LOST
from ferrymq_codec.errors import CodecError
from ferrymq_types.messaging import Accepted, Modified, Rejected, Released
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_types.unions import DeliveryState, Outcome

ACCEPTED: Final = Accepted()
RELEASED: Final = Released()
REJECTED: Final = Rejected()
# A delivery that was lost with its connection.
FAILED: Final = Modified(delivery_failed=True)
# The answer to an outcome that came too late.
LOST: Final = Rejected(
    error=Error(
        condition=LOCK_LOST,
        description="the lock of the message was lost: the outcome has changed nothing",
    )
)

ACCEPTED_SYMBOL: Final = "amqp:accepted:list"
REJECTED_SYMBOL: Final = "amqp:rejected:list"
RELEASED_SYMBOL: Final = "amqp:released:list"
MODIFIED_SYMBOL: Final = "amqp:modified:list"

SUPPORTED_OUTCOMES: Final = (
    ACCEPTED_SYMBOL,
    REJECTED_SYMBOL,
    RELEASED_SYMBOL,
    MODIFIED_SYMBOL,
)


def is_terminal(state: DeliveryState | None) -> TypeGuard[Outcome]:
    """Return whether the state is an outcome; `received` only reports progress (AMQP 1.0
    §3.4.1)."""
    return isinstance(state, Accepted | Released | Rejected | Modified)


def symbol(state: DeliveryState | None) -> str:
    """Return the symbol of an outcome as sources list it; empty for other states."""
    if isinstance(state, Accepted):
        return ACCEPTED_SYMBOL
    if isinstance(state, Rejected):
        return REJECTED_SYMBOL
    if isinstance(state, Released):
        return RELEASED_SYMBOL
    if isinstance(state, Modified):
        return MODIFIED_SYMBOL
    return ""


def judge(node: Node, entry: Entry, state: Outcome, ending: bool) -> Outcome:
    """Return the outcome to apply instead of an outcome of a client (see `Personality.outcome`)."""
    personality = node.space.personality
    return state if personality is None else personality.outcome(node, entry, state, ending)


def _amended(node: Node, message: BrokerMessage, changes: dict[str, object]) -> BrokerMessage:
    personality = node.space.personality
    return (
        message.annotated(changes) if personality is None else personality.amended(message, changes)
    )


def apply_outcome(
    node: Node, consumer: Consumer, entry: Entry, state: DeliveryState | None
) -> bool:
    """Apply an outcome to an entry that the consumer holds; return false if the state is not an
    outcome."""
    if isinstance(state, Accepted):
        node.remove(consumer, entry)
    elif isinstance(state, Released):
        node.give_back(consumer, entry, False, False)
    elif isinstance(state, Modified):
        annotations = state.message_annotations
        if annotations:
            try:
                message = node.message_of(entry)
                if message is not None:
                    node.amend(entry, _amended(node, message, annotations))
            except CodecError:
                # Annotations that cannot be merged are left out; keeping the message is more
                # important.
                pass
        node.give_back(
            consumer, entry, state.delivery_failed is True, state.undeliverable_here is True
        )
    elif isinstance(state, Rejected):
        node.reject(consumer, entry, state.error)
    else:
        return False
    return True
