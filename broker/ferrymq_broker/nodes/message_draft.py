"""A copy of a message under change.

Only rules of subscriptions change the bare message of a copy. All other parts of the broker leave
the bare message as its sender made it.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from ferrymq_broker.nodes.message import BrokerMessage, restore
from ferrymq_broker.nodes.message_view import MessageView, view_of_sections
from ferrymq_broker.nodes.sections import section_at, section_end
from ferrymq_codec.errors import DecodeError, EncodeError
from ferrymq_codec.limits import SECTION_ELEMENTS
from ferrymq_codec.reader import Reader
from ferrymq_types.descriptors import APPLICATION_PROPERTIES, MESSAGE_ANNOTATIONS, PROPERTIES
from ferrymq_types.messaging import (
    ApplicationProperties,
    Header,
    Properties,
    decode_application_properties,
    decode_properties,
    encode_application_properties,
    encode_header,
    encode_properties,
)

# The most bytes of properties and application-properties that a change may make.
MAX_CHANGED: Final = 65_536


@final
class MessageDraft:
    """A copy of a message under change; made by `draft_of`. `view` has the content so far."""

    __slots__ = (
        "view",
        "_message",
        "_annotations_end",
        "_properties_end",
        "_body_at",
        "_header",
        "_properties",
        "_application",
        "_has_properties",
        "_has_application",
    )

    def __init__(self, message: BrokerMessage) -> None:
        """Read the sections. Raises `DecodeError` if they are malformed."""
        self._message = message
        payload = message.payload
        pos = message.header_end
        code = section_at(payload, pos)
        if code == MESSAGE_ANNOTATIONS:
            pos = section_end(payload, pos)
            code = section_at(payload, pos)
        self._annotations_end: i64 = pos
        properties = Properties()
        if code == PROPERTIES:
            end = section_end(payload, pos)
            properties = decode_properties(_reader(payload, pos, end))
            pos = end
            code = section_at(payload, pos)
        self._properties_end: i64 = pos
        application: dict[str, object] = {}
        if code == APPLICATION_PROPERTIES:
            end = section_end(payload, pos)
            application = decode_application_properties(_reader(payload, pos, end)).value
            pos = end
        self._body_at: i64 = pos
        header = message.header()
        self._header: Header = header
        self._properties: Properties = properties
        self._application: dict[str, object] = application
        # Which sections have been changed.
        self._has_properties = False
        self._has_application = False
        self.view: MessageView = view_of_sections(message, header, properties, application)

    def header(self) -> Header:
        """Return the header, to change its ttl or priority."""
        return self._header

    def properties(self) -> Properties:
        """Return the properties, to change them."""
        self._has_properties = True
        return self._properties

    def set_application_property(self, name: str, value: object) -> None:
        """Set an application property."""
        self._has_application = True
        self._application[name] = value

    def remove_application_property(self, name: str) -> None:
        """Remove an application property, if there is one."""
        if name in self._application:
            self._has_application = True
            del self._application[name]

    def message(self) -> BrokerMessage:
        """Return the changed message; an unchanged copy if its properties would be too large."""
        message = self._message
        payload = message.payload
        header_end = message.header_end
        start = self._annotations_end
        w = BytesWriter()
        header = self._header
        ttl: i64 = -1 if header.ttl is None else header.ttl
        if ttl != message.ttl or header.priority != message.priority:
            encode_header(w, header)
        else:
            w.write(payload[:header_end])
        w.write(payload[header_end:start])
        before: i64 = len(w)
        try:
            if self._has_properties:
                encode_properties(w, self._properties)
            else:
                w.write(payload[start : self._properties_end])
            if not self._has_application:
                w.write(payload[self._properties_end : self._body_at])
            elif self._application:
                encode_application_properties(w, ApplicationProperties(value=self._application))
        except EncodeError:
            return message.copy()
        size: i64 = len(w) - before
        if size > MAX_CHANGED and size > self._body_at - start:
            return message.copy()
        w.write(payload[self._body_at :])
        changed = restore(w.getvalue(), message.format, message.special or ttl >= 0, message.origin)
        changed.durable = message.durable
        return changed


def draft_of(message: BrokerMessage) -> MessageDraft | None:
    """Return a draft of a copy of the message; None if its sections cannot be read."""
    if message.opaque:
        return None
    try:
        return MessageDraft(message)
    except DecodeError:
        return None


def _reader(payload: bytes, pos: i64, end: i64) -> Reader:
    """Return a reader behind the descriptor of a section."""
    reader = Reader(payload, pos, end)
    reader.budget = SECTION_ELEMENTS
    reader.read_descriptor("message")
    return reader
