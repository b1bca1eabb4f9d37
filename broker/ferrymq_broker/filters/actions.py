"""The actions of rules, which change a copy of a message."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final, final
from uuid import UUID

from mypy_extensions import i64

from ferrymq_broker.filters.identifiers import (
    HEADER_FIELDS,
    PROPERTIES_FIELDS,
    ApplicationProperty,
    Field,
)
from ferrymq_broker.nodes.message_draft import draft_of
from ferrymq_codec.scalars import UInt, ULong

if TYPE_CHECKING:
    from ferrymq_broker.filters.expressions import Expression
    from ferrymq_broker.filters.identifiers import Identifier
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.message_draft import MessageDraft

# The most statements of an action, and the most characters or bytes of a value that it sets.
MAX_STATEMENTS: Final = 32
MAX_VALUE: Final = 65_536

_TTL: Final = HEADER_FIELDS["ttl"]
_PRIORITY: Final = HEADER_FIELDS["priority"]
_MESSAGE_ID: Final = PROPERTIES_FIELDS["message-id"]
_CORRELATION_ID: Final = PROPERTIES_FIELDS["correlation-id"]
_TO: Final = PROPERTIES_FIELDS["to"]
_SUBJECT: Final = PROPERTIES_FIELDS["subject"]
_REPLY_TO: Final = PROPERTIES_FIELDS["reply-to"]
_CONTENT_TYPE: Final = PROPERTIES_FIELDS["content-type"]
_CONTENT_ENCODING: Final = PROPERTIES_FIELDS["content-encoding"]
_GROUP_ID: Final = PROPERTIES_FIELDS["group-id"]
_GROUP_SEQUENCE: Final = PROPERTIES_FIELDS["group-sequence"]
_REPLY_TO_GROUP_ID: Final = PROPERTIES_FIELDS["reply-to-group-id"]

# The fields that an action may change, and their names.
SETTABLE: Final[dict[int, str]] = {
    number: name
    for name, number in (*HEADER_FIELDS.items(), *PROPERTIES_FIELDS.items())
    if number
    in (
        _TTL,
        _PRIORITY,
        _MESSAGE_ID,
        _CORRELATION_ID,
        _TO,
        _SUBJECT,
        _REPLY_TO,
        _CONTENT_TYPE,
        _CONTENT_ENCODING,
        _GROUP_ID,
        _GROUP_SEQUENCE,
        _REPLY_TO_GROUP_ID,
    )
}

_HEADER: Final = (_TTL, _PRIORITY)
_IDENTITIES: Final = (_MESSAGE_ID, _CORRELATION_ID)
_SYMBOLS: Final = (_CONTENT_TYPE, _CONTENT_ENCODING)

_INT_MIN: Final = -(1 << 63)
_INT_MAX: Final = (1 << 63) - 1
_ULONG_MAX: Final = (1 << 64) - 1
_UINT_MAX: Final = (1 << 32) - 1
_DEFAULT_PRIORITY: Final = 4


class Statement:
    """A statement of an action: it changes the property `identifier`."""

    __slots__ = ("identifier",)

    def __init__(self, identifier: Identifier) -> None:
        self.identifier: Identifier = identifier

    def apply(self, draft: MessageDraft) -> None:
        """Change the draft. Never raises: a change that is not possible is left out."""


@final
class Assignment(Statement):
    """A statement that sets a property: ``SET name = expression``."""

    __slots__ = ("expression",)

    def __init__(self, identifier: Identifier, expression: Expression) -> None:
        super().__init__(identifier)
        self.expression: Expression = expression

    def apply(self, draft: MessageDraft) -> None:
        """Set the property. An application property becomes null if the value is NULL; a field is
        then removed. A value that the field cannot have changes nothing."""
        expression = self.expression
        identifier = self.identifier
        value: object
        if isinstance(expression, ApplicationProperty):
            # The value itself keeps its type, for example that of a UUID.
            value = draft.view.application_properties.get(expression.name)
        else:
            value = expression.value(draft.view)
        if isinstance(value, (str, bytes)) and len(value) > MAX_VALUE:
            return
        if isinstance(identifier, Field):
            set_field(draft, identifier.field, value)
        else:
            draft.set_application_property(identifier.name, _simple(value))


@final
class Removal(Statement):
    """A statement that removes a property: ``REMOVE name``."""

    __slots__ = ()

    def apply(self, draft: MessageDraft) -> None:
        """Remove the property, if there is one."""
        identifier = self.identifier
        if isinstance(identifier, Field):
            set_field(draft, identifier.field, None)
        else:
            draft.remove_application_property(identifier.name)


@final
class Action:
    """Statements that change a copy of a message, one after the other. `text` is their source."""

    __slots__ = ("statements", "text")

    def __init__(self, statements: list[Statement]) -> None:
        self.statements: list[Statement] = statements
        self.text: str = ""

    def apply(self, message: BrokerMessage) -> BrokerMessage:
        """Return a changed copy of the message.

        The copy is unchanged if the message is in a foreign format, if its properties cannot be
        read, or if they would become too large. Never raises.
        """
        draft = draft_of(message)
        if draft is None:
            return message.copy()
        for statement in self.statements:
            statement.apply(draft)
        return draft.message()


def set_field(draft: MessageDraft, field: i64, value: object) -> None:
    """Set a field of the header or the properties, or remove it if the value is None."""
    if field in _HEADER:
        _set_header_field(draft, field, value)
        return
    properties = draft.properties()
    if field in _IDENTITIES:
        if isinstance(value, (bool, float)):
            return
        identity: ULong | UUID | bytes | str | None = None
        if isinstance(value, int):
            if not 0 <= value <= _ULONG_MAX:
                return
            identity = ULong(value)
        elif isinstance(value, (str, bytes, UUID)):
            identity = value
        elif value is not None:
            return
        if field == _MESSAGE_ID:
            properties.message_id = identity
        else:
            properties.correlation_id = identity
    elif field == _GROUP_SEQUENCE:
        if value is None:
            properties.group_sequence = None
        elif isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _UINT_MAX:
            properties.group_sequence = UInt(value)
    elif value is None or isinstance(value, str):
        text = None if value is None else str(value)
        _set_text(draft, field, text)


def _set_header_field(draft: MessageDraft, field: i64, value: object) -> None:
    header = draft.header()
    if value is not None:
        most = _UINT_MAX if field == _TTL else 255
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            return
    number = None if value is None else int(value)
    if field == _TTL:
        header.ttl = number
    else:
        header.priority = _DEFAULT_PRIORITY if number is None else number


def _set_text(draft: MessageDraft, field: i64, text: str | None) -> None:
    properties = draft.properties()
    if field == _TO:
        properties.to = text
    elif field == _SUBJECT:
        properties.subject = text
    elif field == _REPLY_TO:
        properties.reply_to = text
    elif field in _SYMBOLS:
        # Symbols are of ASCII.
        if text is not None and not text.isascii():
            return
        if field == _CONTENT_TYPE:
            properties.content_type = text
        else:
            properties.content_encoding = text
    elif field == _GROUP_ID:
        properties.group_id = text
    elif field == _REPLY_TO_GROUP_ID:
        properties.reply_to_group_id = text


def _simple(value: object) -> object:
    """Return a value that an application property can have; None for any other."""
    if value is None or isinstance(value, (bool, str, bytes, float, UUID, Decimal)):
        return value
    if isinstance(value, int):
        if _INT_MIN <= value <= _INT_MAX:
            return value
        return ULong(value) if 0 <= value <= _ULONG_MAX else float(value)
    return value if type(value).__module__ == "ferrymq_codec.scalars" else None
