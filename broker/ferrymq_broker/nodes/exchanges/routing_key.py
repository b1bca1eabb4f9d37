"""The routing keys that a message has itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ferrymq_broker.nodes.message_view import view_of
from ferrymq_broker.nodes.sections import section_at, section_end
from ferrymq_types.descriptors import MESSAGE_ANNOTATIONS

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


def further_keys_of(message: BrokerMessage, annotation: str) -> list[str]:
    """Return the routing keys in a list that an annotation has; empty without it, and for an empty
    name."""
    if not annotation or message.opaque:
        return []
    payload = message.payload
    pos = message.header_end
    # Nearly no message has it: nothing is decoded for the others.
    if (
        section_at(payload, pos) != MESSAGE_ANNOTATIONS
        or payload.find(annotation.encode(), pos, section_end(payload, pos)) < 0
    ):
        return []
    stated = view_of(message).message_annotations.get(annotation)
    if not isinstance(stated, list):
        return []
    return [key for key in stated if isinstance(key, str)]
