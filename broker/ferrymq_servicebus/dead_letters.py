"""Dead letters: what a consumer, or the broker, says about them becomes application-properties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ferrymq_broker.nodes.message_draft import draft_of
from ferrymq_broker.nodes.message_view import view_of
from ferrymq_broker.nodes.queues.lifecycle.dead_letters import (
    CONDITION,
    COUNT,
    DELIVERY_LIMIT,
    DESCRIPTION,
    EXPIRED,
    FIRST_REASON,
    FIRST_SOURCE,
    FORWARDING,
    INFO,
    ORIGINAL_TTL,
    PATH,
    REASON,
    SOURCE,
    TIME,
)

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import BrokerMessage

DEAD_LETTER: Final = "com.microsoft:dead-letter"
REASON_PROPERTY: Final = "DeadLetterReason"
DESCRIPTION_PROPERTY: Final = "DeadLetterErrorDescription"

# The annotations of a dead letter, which only the broker writes.
DEAD_LETTER_NAMES: Final = (
    CONDITION, COUNT, DESCRIPTION, FIRST_REASON, FIRST_SOURCE, INFO, ORIGINAL_TTL, PATH, REASON,
    SOURCE, TIME,
)  # fmt: skip

# What the service says about messages that it sets aside itself.
_OWN: Final = {
    EXPIRED: ("TTLExpiredException", "The message expired and was dead lettered."),
    DELIVERY_LIMIT: (
        "MaxDeliveryCountExceeded",
        "The message could not be consumed within the highest number of deliveries.",
    ),
    FORWARDING: ("ForwardingFailed", "The message could not be sent on."),
}


def explained(message: BrokerMessage) -> BrokerMessage:
    """Return a dead letter with the reason and the description as application-properties, and with
    the properties that its consumer gave it."""
    annotations = view_of(message).message_annotations
    reason = annotations.get(REASON)
    if reason is None:
        return message
    properties: dict[str, object] = {}
    info = annotations.get(INFO)
    if isinstance(info, dict):
        properties.update({str(name): value for name, value in info.items()})
    elif str(reason) in _OWN:
        properties[REASON_PROPERTY], properties[DESCRIPTION_PROPERTY] = _OWN[str(reason)]
    elif annotations.get(DESCRIPTION) is not None:
        properties[DESCRIPTION_PROPERTY] = str(annotations[DESCRIPTION])
    draft = draft_of(message) if properties else None
    if draft is None:
        return message
    for name, value in properties.items():
        draft.set_application_property(name, value)
    return draft.message()
