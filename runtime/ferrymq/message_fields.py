"""The fields of a message's header and properties, as attributes of the message.

`header` and `properties` are the sections themselves, None where the message has none. Reading a
field of a missing section returns the field's default; writing a field creates the section.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrymq.durations import Duration, Moment, milliseconds, timestamp
from ferrymq_types.messaging import Header, Properties

if TYPE_CHECKING:
    from ferrymq_types.unions import MessageId


class MessageFields:
    """Base class of `Message`: the sections `header` and `properties`, and their fields."""

    __slots__ = ("_header", "_durable", "properties")

    def __init__(self) -> None:
        self._header: Header | None = None
        # Whether there is a header that says `durable` and nothing else. Then it is made when it is
        # asked for.
        self._durable: bool = False
        self.properties: Properties | None = None

    @property
    def header(self) -> Header | None:
        """The header; None if the message has none (AMQP 1.0 §3.2.1)."""
        header = self._header
        if header is None and self._durable:
            header = Header(durable=True)
            # From here on the header may be changed.
            self._header = header
            self._durable = False
        return header

    @header.setter
    def header(self, value: Header | None) -> None:
        self._header = value
        self._durable = False

    def _made_header(self) -> Header:
        header = self.header
        if header is None:
            header = Header()
            self.header = header
        return header

    def _made_properties(self) -> Properties:
        properties = self.properties
        if properties is None:
            properties = Properties()
            self.properties = properties
        return properties

    # ── Header ─────────────────────────────────────────────────────────────────────────────────

    @property
    def durable(self) -> bool:
        """Whether the message outlives a restart of every node with it (AMQP 1.0 §3.2.1)."""
        header = self._header
        return self._durable if header is None else header.durable

    @durable.setter
    def durable(self, value: bool) -> None:
        self._made_header().durable = value

    @property
    def priority(self) -> int:
        """Importance, 0 to 255; 4 is the default (AMQP 1.0 §3.2.1)."""
        header = self._header
        return 4 if header is None else header.priority

    @priority.setter
    def priority(self, value: int) -> None:
        self._made_header().priority = value

    # In compiled code an assignment takes only the type that the getter returns (mypyc). The wider
    # types of some setters are for applications; compiled code sets the fields of the section.

    @property
    def ttl(self) -> float | None:
        """Remaining lifetime in seconds, None for no limit (AMQP 1.0 §3.2.1).

        Also takes a timedelta. `Header.ttl` is the same in milliseconds.
        """
        header = self._header
        if header is None:
            return None
        ttl = header.ttl
        return None if ttl is None else ttl / 1000

    @ttl.setter
    def ttl(self, value: Duration | None) -> None:
        self._made_header().ttl = None if value is None else milliseconds(value, "ttl")

    @property
    def first_acquirer(self) -> bool:
        """Whether no other link has had the message yet (AMQP 1.0 §3.2.1)."""
        header = self._header
        return False if header is None else header.first_acquirer

    @first_acquirer.setter
    def first_acquirer(self, value: bool) -> None:
        self._made_header().first_acquirer = value

    @property
    def delivery_count(self) -> int:
        """Number of failed attempts to deliver the message (AMQP 1.0 §3.2.1)."""
        header = self._header
        return 0 if header is None else header.delivery_count

    @delivery_count.setter
    def delivery_count(self, value: int) -> None:
        self._made_header().delivery_count = value

    # ── Properties ─────────────────────────────────────────────────────────────────────────────

    @property
    def message_id(self) -> MessageId | None:
        """Identity of the message: int (ulong), UUID, bytes or str (AMQP 1.0 §3.2.4)."""
        properties = self.properties
        return None if properties is None else properties.message_id

    @message_id.setter
    def message_id(self, value: MessageId | None) -> None:
        self._made_properties().message_id = value

    @property
    def user_id(self) -> bytes | None:
        """Identity of the user who produced the message (AMQP 1.0 §3.2.4)."""
        properties = self.properties
        return None if properties is None else properties.user_id

    @user_id.setter
    def user_id(self, value: bytes | None) -> None:
        self._made_properties().user_id = value

    @property
    def to(self) -> str | None:
        """Address of the message's destination node (AMQP 1.0 §3.2.4)."""
        properties = self.properties
        return None if properties is None else properties.to

    @to.setter
    def to(self, value: str | None) -> None:
        self._made_properties().to = value

    @property
    def subject(self) -> str | None:
        """Subject of the message; often a routing key (AMQP 1.0 §3.2.4)."""
        properties = self.properties
        return None if properties is None else properties.subject

    @subject.setter
    def subject(self, value: str | None) -> None:
        self._made_properties().subject = value

    @property
    def reply_to(self) -> str | None:
        """Address of the node for replies (AMQP 1.0 §3.2.4)."""
        properties = self.properties
        return None if properties is None else properties.reply_to

    @reply_to.setter
    def reply_to(self, value: str | None) -> None:
        self._made_properties().reply_to = value

    @property
    def correlation_id(self) -> MessageId | None:
        """Identity of the related message (AMQP 1.0 §3.2.4)."""
        properties = self.properties
        return None if properties is None else properties.correlation_id

    @correlation_id.setter
    def correlation_id(self, value: MessageId | None) -> None:
        self._made_properties().correlation_id = value

    @property
    def content_type(self) -> str | None:
        """Media type of the data sections (AMQP 1.0 §3.2.4)."""
        properties = self.properties
        return None if properties is None else properties.content_type

    @content_type.setter
    def content_type(self, value: str | None) -> None:
        self._made_properties().content_type = value

    @property
    def content_encoding(self) -> str | None:
        """Coding applied to the data sections, e.g. ``gzip`` (AMQP 1.0 §3.2.4)."""
        properties = self.properties
        return None if properties is None else properties.content_encoding

    @content_encoding.setter
    def content_encoding(self, value: str | None) -> None:
        self._made_properties().content_encoding = value

    @property
    def absolute_expiry_time(self) -> int | None:
        """Moment of expiry, in ms since the Unix epoch (AMQP 1.0 §3.2.4). Also takes a datetime
        with a time zone."""
        properties = self.properties
        return None if properties is None else properties.absolute_expiry_time

    @absolute_expiry_time.setter
    def absolute_expiry_time(self, value: Moment | None) -> None:
        self._made_properties().absolute_expiry_time = None if value is None else timestamp(value)

    @property
    def creation_time(self) -> int | None:
        """Moment of creation, in ms since the Unix epoch (AMQP 1.0 §3.2.4). Also takes a datetime
        with a time zone."""
        properties = self.properties
        return None if properties is None else properties.creation_time

    @creation_time.setter
    def creation_time(self, value: Moment | None) -> None:
        self._made_properties().creation_time = None if value is None else timestamp(value)

    @property
    def group_id(self) -> str | None:
        """Name of the message's group (AMQP 1.0 §3.2.4)."""
        properties = self.properties
        return None if properties is None else properties.group_id

    @group_id.setter
    def group_id(self, value: str | None) -> None:
        self._made_properties().group_id = value

    @property
    def group_sequence(self) -> int | None:
        """Position in the group, a serial number of 32 bits (AMQP 1.0 §3.2.4)."""
        properties = self.properties
        return None if properties is None else properties.group_sequence

    @group_sequence.setter
    def group_sequence(self, value: int | None) -> None:
        self._made_properties().group_sequence = value

    @property
    def reply_to_group_id(self) -> str | None:
        """Name of the group for replies (AMQP 1.0 §3.2.4)."""
        properties = self.properties
        return None if properties is None else properties.reply_to_group_id

    @reply_to_group_id.setter
    def reply_to_group_id(self, value: str | None) -> None:
        self._made_properties().reply_to_group_id = value
