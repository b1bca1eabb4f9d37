"""Requests and responses, as services see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from ferrymq_broker.nodes.message import BrokerMessage
from ferrymq_codec.limits import SECTION_ELEMENTS
from ferrymq_codec.reader import Reader
from ferrymq_types.messaging import (
    AmqpSequence,
    AmqpValue,
    ApplicationProperties,
    Data,
    Properties,
    encode_amqp_value,
    encode_application_properties,
    encode_properties,
)
from ferrymq_types.unions import decode_section

if TYPE_CHECKING:
    from ferrymq_broker.nodes.link_terms import Party
    from ferrymq_broker.nodes.node import Node
    from ferrymq_broker.nodes.response_room import ResponseRoom
    from ferrymq_types.unions import MessageId


@final
class Request:
    """A request: the sections of its message, decoded.

    `body` is the value, the list of a sequence, the bytes of data sections, or None; `size` is the
    size of the message in bytes. The response is sent to the address `reply_to` through the node
    `way`; both are None if the client wants no response. The response may have `most` bytes; 0 is
    no limit. `room` is the room that is kept for the response.
    """

    __slots__ = (
        "party",
        "properties",
        "application_properties",
        "body",
        "size",
        "way",
        "most",
        "reply_to",
        "room",
    )

    def __init__(self, party: Party) -> None:
        self.party: Party = party
        self.properties: Properties = Properties()
        self.application_properties: dict[str, object] = {}
        self.body: object = None
        self.size: i64 = 0
        self.way: Node | None = None
        self.most: i64 = 0
        self.reply_to: str | None = None
        self.room: ResponseRoom | None = None

    def free_room(self) -> None:
        """Free the room for the response, which is sent now or never."""
        room = self.room
        if room is not None:
            self.room = None
            room.free()


@final
class Response:
    """A response: an amqp-value, with application-properties and perhaps a subject."""

    __slots__ = ("application_properties", "body", "subject")

    def __init__(
        self,
        application_properties: dict[str, object],
        body: object = None,
        subject: str | None = None,
    ) -> None:
        self.application_properties: dict[str, object] = application_properties
        self.body: object = body
        self.subject: str | None = subject


def read_request(message: BrokerMessage, party: Party) -> Request:
    """Return the sections of a request. Raises `DecodeError` if they are malformed."""
    request = Request(party)
    if message.opaque:
        return request
    payload = message.payload
    request.size = len(payload)
    reader = Reader(payload, message.header_end, len(payload))
    reader.budget = SECTION_ELEMENTS
    while reader.remaining():
        section = decode_section(reader, "message")
        if isinstance(section, Properties):
            request.properties = section
        elif isinstance(section, ApplicationProperties):
            request.application_properties = section.value
        elif isinstance(section, AmqpValue):
            request.body = section.value
        elif isinstance(section, Data):
            before = request.body
            request.body = before + section.value if isinstance(before, bytes) else section.value
        elif isinstance(section, AmqpSequence):
            request.body = section.value
    return request


def encode_response(response: Response, to: str | None, asked: Properties) -> BrokerMessage:
    """Return the response to the request with the properties `asked`, as a message for `to`.

    Its correlation-id has the value and the AMQP type of the request's correlation-id, else of its
    message-id.
    """
    correlation: MessageId | None = asked.correlation_id
    if correlation is None:
        correlation = asked.message_id
    w = BytesWriter()
    encode_properties(w, Properties(to=to, subject=response.subject, correlation_id=correlation))
    if response.application_properties:
        encode_application_properties(w, ApplicationProperties(response.application_properties))
    encode_amqp_value(w, AmqpValue(response.body))
    return BrokerMessage(w.getvalue(), 0, 0)
