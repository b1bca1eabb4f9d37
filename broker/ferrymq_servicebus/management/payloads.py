"""Messages in the bodies of requests and responses, with the annotations of the broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

from librt.strings import BytesWriter

from ferrymq_broker.nodes.message import BrokerMessage, restore
from ferrymq_broker.nodes.message_view import view_of
from ferrymq_broker.nodes.queues.lifecycle.dead_letters import SOURCE
from ferrymq_codec.errors import CodecError
from ferrymq_codec.scalars import Int, Timestamp
from ferrymq_servicebus.annotations import (
    ENQUEUED_SEQUENCE,
    LOCKED_UNTIL,
    OFFSET,
    SEQUENCE,
    STATE,
    enqueued_sequence,
)
from ferrymq_servicebus.dead_letters import explained
from ferrymq_types.messaging import (
    Data,
    DeliveryAnnotations,
    encode_data,
    encode_delivery_annotations,
)

ACTIVE: Final = 0
DEFERRED: Final = 1
SCHEDULED: Final = 2

_LOCK_TOKEN: Final = "x-opt-lock-token"


def stamped(
    payload: bytes,
    sequence: int,
    state: int,
    locked_until: Timestamp | None = None,
    with_body: bool = True,
    token: UUID | None = None,
    *,
    named: Callable[[str], str],
) -> bytes:
    """Return an encoded message with what the broker knows about it as annotations.

    The token of its lock is a delivery-annotation: older clients look for it only there. `named`
    returns the path of a native address.
    """
    annotations: dict[str, object] = {SEQUENCE: sequence, STATE: Int(state)}
    if locked_until is not None:
        annotations[LOCKED_UNTIL] = locked_until
    try:
        message = explained(restore(payload, 0, False, 0))
        kept = view_of(message).message_annotations
        number = int(enqueued_sequence(kept, sequence))
        annotations.update({ENQUEUED_SEQUENCE: number, OFFSET: number})
        if isinstance(kept.get(SOURCE), str):
            annotations[SOURCE] = named(str(kept[SOURCE]))
        if not with_body:
            message = _without_body(message)
        message = message.annotated(annotations)
        return message.payload if token is None else _with_token(message, token)
    except CodecError:
        # The message can be shown as it is.
        return payload


def _with_token(message: BrokerMessage, token: UUID) -> bytes:
    head = int(message.header_end)
    w = BytesWriter()
    w.write(message.payload[:head])
    encode_delivery_annotations(w, DeliveryAnnotations(value={_LOCK_TOKEN: token}))
    w.write(message.payload[head:])
    return w.getvalue()


def _without_body(message: BrokerMessage) -> BrokerMessage:
    head = message.payload[: int(view_of(message).head_size)]
    w = BytesWriter()
    w.write(head)
    encode_data(w, Data(value=b""))
    return restore(w.getvalue(), 0, False, 0)
