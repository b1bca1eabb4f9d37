"""The names in a selector, and the parts of a message that they refer to."""

from __future__ import annotations

from typing import Final, final
from uuid import UUID

from mypy_extensions import i64

from ferrymq_broker.filters.expressions import Expression
from ferrymq_broker.filters.values import plain
from ferrymq_broker.nodes.message_view import MessageView

# Numbers of the fields of sections, and of the fields that JMS derives from them.
_DURABLE: Final = 0
_PRIORITY: Final = 1
_TTL: Final = 2
_FIRST_ACQUIRER: Final = 3
_DELIVERY_COUNT: Final = 4
_MESSAGE_ID: Final = 5
_USER_ID: Final = 6
_TO: Final = 7
_SUBJECT: Final = 8
_REPLY_TO: Final = 9
_CORRELATION_ID: Final = 10
_CONTENT_TYPE: Final = 11
_CONTENT_ENCODING: Final = 12
_ABSOLUTE_EXPIRY_TIME: Final = 13
_CREATION_TIME: Final = 14
_GROUP_ID: Final = 15
_GROUP_SEQUENCE: Final = 16
_REPLY_TO_GROUP_ID: Final = 17
_JMS_DELIVERY_MODE: Final = 18
_JMS_MESSAGE_ID: Final = 19
_JMS_CORRELATION_ID: Final = 20
_JMS_EXPIRATION: Final = 21
_JMS_REDELIVERED: Final = 22
_JMS_DELIVERY_COUNT: Final = 23
_JMS_USER_ID: Final = 24

HEADER_FIELDS: Final[dict[str, int]] = {
    "durable": _DURABLE,
    "priority": _PRIORITY,
    "ttl": _TTL,
    "first-acquirer": _FIRST_ACQUIRER,
    "delivery-count": _DELIVERY_COUNT,
}

PROPERTIES_FIELDS: Final[dict[str, int]] = {
    "message-id": _MESSAGE_ID,
    "user-id": _USER_ID,
    "to": _TO,
    "subject": _SUBJECT,
    "reply-to": _REPLY_TO,
    "correlation-id": _CORRELATION_ID,
    "content-type": _CONTENT_TYPE,
    "content-encoding": _CONTENT_ENCODING,
    "absolute-expiry-time": _ABSOLUTE_EXPIRY_TIME,
    "creation-time": _CREATION_TIME,
    "group-id": _GROUP_ID,
    "group-sequence": _GROUP_SEQUENCE,
    "reply-to-group-id": _REPLY_TO_GROUP_ID,
}

# The header fields and properties of JMS, by the JMS mapping of AMQP.
JMS_FIELDS: Final[dict[str, int]] = {
    "JMSPriority": _PRIORITY,
    "JMSDeliveryMode": _JMS_DELIVERY_MODE,
    "JMSMessageID": _JMS_MESSAGE_ID,
    "JMSTimestamp": _CREATION_TIME,
    "JMSCorrelationID": _JMS_CORRELATION_ID,
    "JMSType": _SUBJECT,
    "JMSDestination": _TO,
    "JMSReplyTo": _REPLY_TO,
    "JMSExpiration": _JMS_EXPIRATION,
    "JMSRedelivered": _JMS_REDELIVERED,
    "JMSXGroupID": _GROUP_ID,
    "JMSXGroupSeq": _GROUP_SEQUENCE,
    "JMSXDeliveryCount": _JMS_DELIVERY_COUNT,
    "JMSXUserID": _JMS_USER_ID,
}


class Identifier(Expression):
    """A part of a message. `name` is its name within its section."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__(1)
        self.name: str = name

    def exists(self, view: MessageView) -> bool:
        """Return whether the message has this part, even a null one."""
        return self.value(view) is not None


@final
class ApplicationProperty(Identifier):
    """An application property, which is also the meaning of a name without a section."""

    __slots__ = ()

    def value(self, view: MessageView) -> object:
        """Return the value."""
        return plain(view.application_properties.get(self.name))

    def exists(self, view: MessageView) -> bool:
        """Return whether the message has it, even as null."""
        return self.name in view.application_properties

    def render(self) -> str:
        """Return the quoted name."""
        return "a." + quote(self.name)


@final
class Annotation(Identifier):
    """A message annotation."""

    __slots__ = ()

    def value(self, view: MessageView) -> object:
        """Return the value."""
        return plain(view.message_annotations.get(self.name))

    def exists(self, view: MessageView) -> bool:
        """Return whether the message has it, even as null."""
        return self.name in view.message_annotations

    def render(self) -> str:
        """Return the quoted name."""
        return "m." + quote(self.name)


@final
class Field(Identifier):
    """A field of the header or the properties, or one that JMS derives from them."""

    __slots__ = ("field",)

    def __init__(self, name: str, field: i64) -> None:
        super().__init__(name)
        self.field: i64 = field

    def value(self, view: MessageView) -> object:
        """Return the value."""
        return field_value(self.field, view)

    def render(self) -> str:
        """Return the field's number, because several names can mean one field."""
        return f"f.{self.field}"


def quote(name: str) -> str:
    """Return the name in quotation marks."""
    return '"' + name.replace('"', '""') + '"'


def field_value(field: i64, view: MessageView) -> object:
    """Return the value of the field with this number; None if the message does not have it."""
    if field <= _DELIVERY_COUNT:
        return _header_value(field, view)
    if field >= _JMS_DELIVERY_MODE:
        return _jms_value(field, view)
    properties = view.properties
    if properties is None:
        return None
    if field == _SUBJECT:
        return properties.subject
    if field == _MESSAGE_ID:
        return plain(properties.message_id)
    if field == _CORRELATION_ID:
        return plain(properties.correlation_id)
    if field == _USER_ID:
        return properties.user_id
    if field == _TO:
        return properties.to
    if field == _REPLY_TO:
        return properties.reply_to
    if field == _CONTENT_TYPE:
        return properties.content_type
    if field == _CONTENT_ENCODING:
        return properties.content_encoding
    if field == _ABSOLUTE_EXPIRY_TIME:
        return properties.absolute_expiry_time
    if field == _CREATION_TIME:
        return properties.creation_time
    if field == _GROUP_ID:
        return properties.group_id
    if field == _GROUP_SEQUENCE:
        return properties.group_sequence
    return properties.reply_to_group_id


def _header_value(field: i64, view: MessageView) -> object:
    header = view.header
    if field == _PRIORITY:
        return header.priority
    if field == _DURABLE:
        return header.durable
    if field == _TTL:
        return header.ttl
    if field == _FIRST_ACQUIRER:
        return header.first_acquirer
    return header.delivery_count


def _jms_value(field: i64, view: MessageView) -> object:
    if field == _JMS_DELIVERY_MODE:
        return "PERSISTENT" if view.header.durable else "NON_PERSISTENT"
    if field == _JMS_REDELIVERED:
        return view.header.delivery_count > 0
    if field == _JMS_DELIVERY_COUNT:
        # JMS includes the current delivery in the count.
        return view.header.delivery_count + 1
    properties = view.properties
    if field == _JMS_EXPIRATION:
        if properties is None or properties.absolute_expiry_time is None:
            return 0
        return properties.absolute_expiry_time
    if properties is None:
        return None
    if field == _JMS_MESSAGE_ID:
        return _jms_id(properties.message_id)
    if field == _JMS_CORRELATION_ID:
        return _jms_id(properties.correlation_id)
    user = properties.user_id
    if user is None:
        return None
    return user.decode("utf-8", "replace")


def _jms_id(identity: object) -> str | None:
    """Return a message-id in the form that JMS clients see, which is always a string."""
    if identity is None:
        return None
    if isinstance(identity, str):
        return identity
    if isinstance(identity, UUID):
        return f"ID:AMQP_UUID:{identity}"
    if isinstance(identity, bytes):
        return f"ID:AMQP_BINARY:{identity.hex().upper()}"
    return f"ID:AMQP_ULONG:{identity}"
