"""Messages: what an application sends and receives (AMQP 1.0 §3.2).

A message is a row of sections; `Message` holds each under its name. The body is one of three
kinds, and the type of `body` chooses it:

| `body` given | sections written | `body` read back |
|---|---|---|
| `bytes`, `bytearray`, `memoryview` | one data section | `bytes` |
| a list of `Data` | data sections | their bytes, joined |
| a list of `AmqpSequence`, or one | amqp-sequence sections | one `list` of all elements |
| `AmqpValue(x)`, or any other value `x` | an amqp-value section | `x` |

A plain list is a value, so it travels as an amqp-value holding a list; say
`AmqpSequence([...])` for a sequence. `body_sections` holds the sections as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from ferrymq.durations import Duration, Moment, milliseconds, timestamp
from ferrymq.message_body import (
    BodySection,
    check_body,
    check_encoding,
    check_rejected,
    to_sections,
)
from ferrymq.message_errors import located
from ferrymq.message_fields import MessageFields
from ferrymq_codec.codes import DESCRIBED, SMALL_ULONG
from ferrymq_codec.composite import as_bytes
from ferrymq_codec.compound import write_descriptor
from ferrymq_codec.declared import declare, given, pydantic_schema
from ferrymq_codec.described_types import DescribedTypes
from ferrymq_codec.errors import EncodeError
from ferrymq_codec.limits import ELEMENT_MEMORY, MAX_MEMORY
from ferrymq_codec.reader import Reader
from ferrymq_codec.writer import write_binary
from ferrymq_types.descriptors import DATA
from ferrymq_types.messaging import (
    AmqpSequence,
    AmqpValue,
    ApplicationProperties,
    Data,
    DeliveryAnnotations,
    Footer,
    Header,
    MessageAnnotations,
    Properties,
    encode_amqp_sequence,
    encode_amqp_value,
    encode_application_properties,
    encode_data,
    encode_delivery_annotations,
    encode_footer,
    encode_header,
    encode_message_annotations,
    encode_properties,
)
from ferrymq_types.unions import MessageId, decode_section

__all__ = ["AnyAnnotations", "BodySection", "Message"]

AnyAnnotations: TypeAlias = Mapping[str, object] | Mapping[str | int, object]
"""Annotations as arguments: keys are str (symbols) or int (ulongs)."""

# The order of sections in a message (AMQP 1.0 §3.2). A body is also accepted earlier: some clients
# put an empty one before the properties.
_HEADER: Final = 1
_DELIVERY_ANNOTATIONS: Final = 2
_MESSAGE_ANNOTATIONS: Final = 3
_PROPERTIES: Final = 4
_APPLICATION_PROPERTIES: Final = 5
_FOOTER: Final = 6
# The rank of a missing body.
_NO_BODY: Final = 7
# A header that says `durable` and nothing else, encoded.
_DURABLE: Final = Header(durable=True).to_bytes()


@final
class Message(MessageFields):
    """Message; every section of it can be read and changed.

    The keyword arguments are the fields of `Header` and `Properties`, and the maps, which are
    copied. `ttl` is in seconds or a timedelta; `absolute_expiry_time` and `creation_time` are in ms
    since the Unix epoch or datetimes with a time zone. An empty map equals a missing section.
    """

    __slots__ = (
        "_data",
        "_sections",
        "_delivery_annotations",
        "_message_annotations",
        "_application_properties",
        "_footer",
        "_received",
        "_came",
    )

    def __init__(
        self,
        body: Any = None,
        *,
        durable: bool = False,
        priority: int = 4,
        ttl: Duration | None = None,
        first_acquirer: bool = False,
        delivery_count: int = 0,
        message_id: MessageId | None = None,
        user_id: bytes | None = None,
        to: str | None = None,
        subject: str | None = None,
        reply_to: str | None = None,
        correlation_id: MessageId | None = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
        absolute_expiry_time: Moment | None = None,
        creation_time: Moment | None = None,
        group_id: str | None = None,
        group_sequence: int | None = None,
        reply_to_group_id: str | None = None,
        application_properties: Mapping[str, object] | None = None,
        message_annotations: AnyAnnotations | None = None,
        delivery_annotations: AnyAnnotations | None = None,
        footer: AnyAnnotations | None = None,
    ) -> None:
        self._header: Header | None = None
        self._durable: bool = False
        self.properties: Properties | None = None
        self._delivery_annotations: dict[str | int, object] | None = None
        self._message_annotations: dict[str | int, object] | None = None
        self._application_properties: dict[str, object] | None = None
        self._footer: dict[str | int, object] | None = None
        # A received message is passed on even if it has fields that we must not write ourselves.
        self._received = False
        # The sections that were received, empty ones too: a bit for each rank.
        self._came: i64 = 0
        # The body: the bytes of its only section, which is a data section, or its sections. The
        # list and the section take longer to make, and to collect, than the message.
        self._data: bytes | None = None
        self._sections: list[BodySection] | None = None
        if isinstance(body, bytes):
            self._data = body
        else:
            self._sections = to_sections(body)
        more = priority != 4 or ttl is not None or first_acquirer or delivery_count != 0
        if durable is True and not more:
            self._durable = True
        elif durable or more:
            self._header = Header(
                durable=durable,
                priority=priority,
                ttl=None if ttl is None else milliseconds(ttl, "ttl"),
                first_acquirer=first_acquirer,
                delivery_count=delivery_count,
            )
        if (
            message_id is not None
            or user_id is not None
            or to is not None
            or subject is not None
            or reply_to is not None
            or correlation_id is not None
            or content_type is not None
            or content_encoding is not None
            or absolute_expiry_time is not None
            or creation_time is not None
            or group_id is not None
            or group_sequence is not None
            or reply_to_group_id is not None
        ):
            self.properties = Properties(
                message_id=message_id,
                user_id=user_id,
                to=to,
                subject=subject,
                reply_to=reply_to,
                correlation_id=correlation_id,
                content_type=content_type,
                content_encoding=content_encoding,
                absolute_expiry_time=(
                    None if absolute_expiry_time is None else timestamp(absolute_expiry_time)
                ),
                creation_time=None if creation_time is None else timestamp(creation_time),
                group_id=group_id,
                group_sequence=group_sequence,
                reply_to_group_id=reply_to_group_id,
            )
        if application_properties is not None:
            self._application_properties = dict(application_properties)
        if message_annotations is not None:
            self._message_annotations = _copy(message_annotations)
        if delivery_annotations is not None:
            self._delivery_annotations = _copy(delivery_annotations)
        if footer is not None:
            self._footer = _copy(footer)

    # ── Sections ───────────────────────────────────────────────────────────────────────────────

    @property
    def body(self) -> Any:
        """The body as one Python value: see the table of the module. None if there is no body."""
        data = self._data
        if data is not None:
            return data
        sections = self._sections
        if not sections:
            return None
        if len(sections) == 1:
            # The list of a sequence is that of the section itself, so that a change of it changes
            # the body.
            return sections[0].value
        if isinstance(sections[0], Data):
            return b"".join([section.value for section in sections if isinstance(section, Data)])
        elements: list[object] = []
        for section in sections:
            if isinstance(section, AmqpSequence):
                elements.extend(section.value)
        return elements

    @body.setter
    def body(self, value: Any) -> None:
        if isinstance(value, bytes):
            self._data = value
            self._sections = None
        else:
            self._sections = to_sections(value)
            self._data = None

    @property
    def body_sections(self) -> list[BodySection]:
        """The sections of the body as they are, none if there is no body (AMQP 1.0 §3.2.6)."""
        sections = self._sections
        if sections is None:
            data = self._data
            sections = [] if data is None else [Data(data)]
            # From here on the sections may be changed, so they are the body.
            self._sections = sections
            self._data = None
        return sections

    @body_sections.setter
    def body_sections(self, value: list[BodySection]) -> None:
        self._sections = value
        self._data = None

    @property
    def application_properties(self) -> dict[str, object]:
        """Properties set by the application: simple values by name (AMQP 1.0 §3.2.5)."""
        value = self._application_properties
        if value is None:
            value = {}
            self._application_properties = value
        return value

    @application_properties.setter
    def application_properties(self, value: dict[str, object]) -> None:
        self._application_properties = value

    @property
    def message_annotations(self) -> dict[str | int, object]:
        """Annotations that every intermediary hands on (AMQP 1.0 §3.2.3)."""
        value = self._message_annotations
        if value is None:
            value = {}
            self._message_annotations = value
        return value

    @message_annotations.setter
    def message_annotations(self, value: dict[str | int, object]) -> None:
        self._message_annotations = value

    @property
    def delivery_annotations(self) -> dict[str | int, object]:
        """Annotations for the next hop alone (AMQP 1.0 §3.2.2)."""
        value = self._delivery_annotations
        if value is None:
            value = {}
            self._delivery_annotations = value
        return value

    @delivery_annotations.setter
    def delivery_annotations(self, value: dict[str | int, object]) -> None:
        self._delivery_annotations = value

    @property
    def footer(self) -> dict[str | int, object]:
        """Details computed over the message, such as signatures (AMQP 1.0 §3.2.9)."""
        value = self._footer
        if value is None:
            value = {}
            self._footer = value
        return value

    @footer.setter
    def footer(self, value: dict[str | int, object]) -> None:
        self._footer = value

    # ── Wire ───────────────────────────────────────────────────────────────────────────────────

    def encode(self) -> bytes:
        """Encode all sections in their order. Without a body a null value is written.

        Raises `EncodeError` for a field whose AMQP type cannot hold its value, and for those that
        mean nothing: a content-encoding of a body that is not data or the encoding "identity"
        (AMQP 1.0 §3.2.4), a delivery annotation `rejected` that is no error (§3.2.2). A message
        that was decoded is encoded as it came: with its empty sections, and without a body if it
        had none.
        """
        try:
            return self._encode()
        except (EncodeError, AttributeError, TypeError) as error:
            maps: dict[str, Any] = {
                "delivery-annotations": self._delivery_annotations,
                "message-annotations": self._message_annotations,
                "application-properties": self._application_properties,
                "footer": self._footer,
            }
            found = located(self.header, self.properties, maps, self.body_sections)
            if found is None:
                raise
            raise found from error

    def _encode(self) -> bytes:
        w = BytesWriter()
        header = self._header
        if header is not None:
            encode_header(w, header)
        elif self._durable:
            w.write(_DURABLE)
        delivery_annotations = self._delivery_annotations
        came = self._came
        if delivery_annotations or came & 1 << _DELIVERY_ANNOTATIONS:
            delivery_annotations = delivery_annotations or {}
            if "rejected" in delivery_annotations and not self._received:
                check_rejected(delivery_annotations["rejected"])
            encode_delivery_annotations(w, DeliveryAnnotations(delivery_annotations))
        message_annotations = self._message_annotations
        if message_annotations or came & 1 << _MESSAGE_ANNOTATIONS:
            encode_message_annotations(w, MessageAnnotations(message_annotations or {}))
        properties = self.properties
        if properties is not None:
            if properties.content_encoding is not None and not self._received:
                check_encoding(properties.content_encoding, self.body_sections)
            encode_properties(w, properties)
        application_properties = self._application_properties
        if application_properties or came & 1 << _APPLICATION_PROPERTIES:
            encode_application_properties(w, ApplicationProperties(application_properties or {}))
        data = self._data
        if data is not None:
            write_descriptor(w, DATA)
            write_binary(w, data, "data")
        else:
            sections = self.body_sections
            if len(sections) > 1:
                check_body(sections)
            elif not sections and not came & 1 << _NO_BODY:
                encode_amqp_value(w, AmqpValue(None))
            for section in sections:
                if isinstance(section, Data):
                    encode_data(w, section)
                elif isinstance(section, AmqpValue):
                    encode_amqp_value(w, section)
                else:
                    encode_amqp_sequence(w, section)
        footer = self._footer
        if footer or came & 1 << _FOOTER:
            encode_footer(w, Footer(footer or {}))
        return w.getvalue()

    @staticmethod
    def decode(
        data: bytes | bytearray | memoryview,
        *,
        max_memory: int = MAX_MEMORY,
        types: DescribedTypes | None = None,
    ) -> Message:
        """Decode the message in `data`, all of which must be sections of it.

        The elements of its lists, maps and arrays may take `max_memory` bytes of memory, at 64
        bytes each; 256 MiB by default, which is 4 194 304 elements. Values of the described `types`
        become instances of their classes; those of other types become `Described`.

        Raises `DecodeError` for anything else: a section that is malformed, unknown, given twice
        or in the wrong place, and bodies of mixed kinds. A message without a body is accepted,
        and so is a body in front of other sections. Raises TypeError for what is no bytes.
        """
        reader = Reader(data if isinstance(data, bytes) else as_bytes(data))
        reader.budget = max_memory // ELEMENT_MEMORY
        reader.types = types
        # A body of bytes takes the least time to make.
        message = Message(b"")
        message._data = None
        message._received = True
        latest: i64 = 0
        while reader.pos < reader.end:
            start = reader.pos
            if message._data is None and message._sections is None and _at_data(reader):
                # The usual body.
                reader.pos = start + 3
                message._data = reader.read_binary("data")
                continue
            section = decode_section(reader, "message")
            rank: i64
            if isinstance(section, (Data, AmqpValue, AmqpSequence)):
                body = message.body_sections
                if body:
                    _check_next(reader, start, body[0], section)
                body.append(section)
                continue
            if isinstance(section, Properties):
                rank = _PROPERTIES
                message.properties = section
            elif isinstance(section, ApplicationProperties):
                rank = _APPLICATION_PROPERTIES
                message._application_properties = section.value
            elif isinstance(section, Header):
                rank = _HEADER
                message._header = section
            elif isinstance(section, MessageAnnotations):
                rank = _MESSAGE_ANNOTATIONS
                message._message_annotations = section.value
            elif isinstance(section, DeliveryAnnotations):
                rank = _DELIVERY_ANNOTATIONS
                message._delivery_annotations = section.value
            else:
                rank = _FOOTER
                message._footer = section.value
            if rank <= latest:
                reader.pos = start
                reader.fail(
                    "message",
                    f"second {_name(section)}" if rank == latest
                    else f"{_name(section)} in the wrong place",
                )  # fmt: skip
            latest = rank
            message._came |= 1 << rank
        if message._data is None and message._sections is None:
            message._came |= 1 << _NO_BODY
        return message

    # ── Python ─────────────────────────────────────────────────────────────────────────────────

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: Any) -> Any:
        """Return the schema by which pydantic checks and serializes messages."""
        return pydantic_schema(cls, handler, given)

    def __eq__(self, other: object) -> bool:
        """Return whether all sections are equal; an empty map equals a missing one.

        The order of a map counts in a body (AMQP 1.0 §1.6.23), and not in the other sections.
        """
        if not isinstance(other, Message):
            return NotImplemented
        return (
            self.body_sections == other.body_sections
            and self.properties == other.properties
            and self.header == other.header
            and (self._application_properties or {}) == (other._application_properties or {})
            and (self._message_annotations or {}) == (other._message_annotations or {})
            and (self._delivery_annotations or {}) == (other._delivery_annotations or {})
            and (self._footer or {}) == (other._footer or {})
        )

    def __hash__(self) -> int:
        """Raise TypeError: a message can change, so it cannot be a key."""
        raise TypeError("unhashable type: 'Message'")

    def __repr__(self) -> str:
        """Return the present sections, with long values shortened."""
        parts: list[str] = [_short(self.body)]
        if self.header is not None:
            parts.append(f"header={_short(self.header)}")
        if self.properties is not None:
            parts.append(f"properties={_short(self.properties)}")
        if self._application_properties:
            parts.append(f"application_properties={_short(self._application_properties)}")
        if self._message_annotations:
            parts.append(f"message_annotations={_short(self._message_annotations)}")
        if self._delivery_annotations:
            parts.append(f"delivery_annotations={_short(self._delivery_annotations)}")
        if self._footer:
            parts.append(f"footer={_short(self._footer)}")
        return f"Message({', '.join(parts)})"


# The parameters of the constructor again: a compiled class does not know their types.
declare(
    Message,
    {
        "body": "Any",
        "durable": "bool",
        "priority": "int",
        "ttl": "Duration | None",
        "first_acquirer": "bool",
        "delivery_count": "int",
        "message_id": "MessageId | None",
        "user_id": "bytes | None",
        "to": "str | None",
        "subject": "str | None",
        "reply_to": "str | None",
        "correlation_id": "MessageId | None",
        "content_type": "str | None",
        "content_encoding": "str | None",
        "absolute_expiry_time": "Moment | None",
        "creation_time": "Moment | None",
        "group_id": "str | None",
        "group_sequence": "int | None",
        "reply_to_group_id": "str | None",
        "application_properties": "Mapping[str, object] | None",
        "message_annotations": "AnyAnnotations | None",
        "delivery_annotations": "AnyAnnotations | None",
        "footer": "AnyAnnotations | None",
    },
    {
        **dict.fromkeys(
            [
                *("body", "ttl", "message_id", "user_id", "to", "subject", "reply_to"),
                *("correlation_id", "content_type", "content_encoding", "absolute_expiry_time"),
                *("creation_time", "group_id", "group_sequence", "reply_to_group_id"),
                *("application_properties", "message_annotations", "delivery_annotations"),
                "footer",
            ]
        ),
        "durable": False,
        "priority": 4,
        "first_acquirer": False,
        "delivery_count": 0,
    },
    ("body",),
)


def _at_data(reader: Reader) -> bool:
    """Return whether a data section with the usual descriptor is next."""
    pos = reader.pos
    if pos + 3 > reader.end:
        return False
    data = reader.data
    return data[pos] == DESCRIBED and data[pos + 1] == SMALL_ULONG and data[pos + 2] == DATA


def _check_next(reader: Reader, start: i64, first: BodySection, section: BodySection) -> None:
    """Raise `DecodeError` unless `section` may follow the `first` one of a body."""
    if isinstance(first, Data):
        legal = isinstance(section, Data)
    else:
        legal = isinstance(first, AmqpSequence) and isinstance(section, AmqpSequence)
    if not legal:
        reader.pos = start
        reader.fail("message", f"{_name(section)} after {_name(first)}")
    # Each section is charged like an element: a few bytes of input must not create unlimited
    # objects.
    reader.charge(1, "message")


def _name(section: object) -> str:
    """Return the name of a section for an error message."""
    return type(section).__name__


def _copy(annotations: AnyAnnotations) -> dict[str | int, object]:
    copy: dict[str | int, object] = {}
    for key, value in annotations.items():
        copy[key] = value
    return copy


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}… ({len(text)} characters)"
