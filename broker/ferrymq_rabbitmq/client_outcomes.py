"""Outcomes of RabbitMQ's clients, in the broker's terms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ferrymq_types.messaging import Modified, Rejected

if TYPE_CHECKING:
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.node import Node
    from ferrymq_types.unions import Outcome

_NAMESPACE: Final = "x-"


def meant_outcome(node: Node, entry: Entry, state: Outcome) -> Outcome:
    """Return what a client means by an outcome: modified with undeliverable-here discards the
    message, as rejected does, and its annotations go with the dead letter.

    Only annotations whose names begin with ``x-`` are taken.
    """
    if not isinstance(state, Modified):
        return state
    annotations = {
        name: value
        for name, value in (state.message_annotations or {}).items()
        if name.startswith(_NAMESPACE)
    }
    if not state.undeliverable_here:
        return Modified(
            delivery_failed=state.delivery_failed, message_annotations=annotations or None
        )
    message = node.message_of(entry)
    if message is not None and annotations:
        node.amend(entry, message.annotated(annotations))
    return Rejected()
