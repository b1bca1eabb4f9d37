"""The routing key of a message whose address does not name one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ferrymq_broker.nodes.message_view import view_of

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import BrokerMessage

ROUTING_KEY: Final = "x-opt-routing-key"


def key_of(message: BrokerMessage, first: str = "") -> str:
    """Return the routing key that the message itself has, in the annotation `first` before anything
    else."""
    view = view_of(message)
    if first:
        stated = view.message_annotations.get(first)
        if isinstance(stated, str):
            return stated
    subject = view.subject
    if subject is not None:
        return subject
    annotated = view.message_annotations.get(ROUTING_KEY)
    return annotated if isinstance(annotated, str) else ""
