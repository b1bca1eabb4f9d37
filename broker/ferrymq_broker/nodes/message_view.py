"""The content of a message for routes and filters: each section is decoded once, when it is needed.

    facts = facts_of(message)
    if facts.subject == "usd.stock" and facts.application_properties.get("colour") == "red": ...

Nothing here raises: a malformed section counts as absent, and so do all sections of a message in a
foreign format. The returned values are shared: callers must not change them.
"""

from __future__ import annotations

from typing import Final, final
from uuid import UUID

from mypy_extensions import i64

from ferrymq_broker.nodes.message import BrokerMessage
from ferrymq_broker.nodes.sections import section_at, section_end
from ferrymq_codec.errors import DecodeError
from ferrymq_codec.limits import SECTION_ELEMENTS
from ferrymq_codec.reader import Reader
from ferrymq_types.descriptors import APPLICATION_PROPERTIES, MESSAGE_ANNOTATIONS, PROPERTIES
from ferrymq_types.messaging import (
    Header,
    Properties,
    decode_application_properties,
    decode_message_annotations,
    decode_properties,
)

_NO_HEADER: Final = Header()
_NO_ANNOTATIONS: Final[dict[str | int, object]] = {}
_NO_PROPERTIES: Final[dict[str, object]] = {}

# A message keeps its view until a number of other messages have been looked at. That keeps the
# message in memory; therefore only one large message has a view at a time.
_RECENT: Final = 64
_LARGE: Final = 16_384


@final
class MessageView:
    """The contents of the sections of one message (AMQP 1.0 §3.2); made by `view_of`."""

    __slots__ = (
        "message",
        "_located",
        "_annotations_at",
        "_properties_at",
        "_application_at",
        "_body_at",
        "_header",
        "_annotations",
        "_properties",
        "_properties_read",
        "_application",
    )

    def __init__(self, message: BrokerMessage) -> None:
        self.message: BrokerMessage = message
        self._located = False
        # Where the sections begin, −1 for a section that is absent.
        self._annotations_at: i64 = -1
        self._properties_at: i64 = -1
        self._application_at: i64 = -1
        self._body_at: i64 = 0
        self._header: Header | None = None
        self._annotations: dict[str | int, object] | None = None
        self._properties: Properties | None = None
        self._properties_read = False
        self._application: dict[str, object] | None = None

    # -- sections --------------------------------------------------------------------------

    @property
    def header(self) -> Header:
        """Return the header (AMQP 1.0 §3.2.1), one of defaults if the message has none."""
        header = self._header
        if header is None:
            try:
                header = self.message.header()
            except DecodeError:
                header = _NO_HEADER
            self._header = header
        return header

    @property
    def message_annotations(self) -> dict[str | int, object]:
        """Return the message-annotations (AMQP 1.0 §3.2.3), empty if there are none."""
        annotations = self._annotations
        if annotations is None:
            annotations = self._read_annotations()
            self._annotations = annotations
        return annotations

    @property
    def properties(self) -> Properties | None:
        """Return the properties (AMQP 1.0 §3.2.4)."""
        if not self._properties_read:
            self._properties_read = True
            self._properties = self._read_properties()
        return self._properties

    @property
    def application_properties(self) -> dict[str, object]:
        """Return the application-properties (AMQP 1.0 §3.2.5), empty if there are none."""
        application = self._application
        if application is None:
            application = self._read_application_properties()
            self._application = application
        return application

    # -- single fields ---------------------------------------------------------------------

    @property
    def message_id(self) -> int | UUID | bytes | str | None:
        """Return properties.message-id, by which a producer tells its messages apart."""
        properties = self.properties
        return None if properties is None else properties.message_id

    @property
    def group_id(self) -> str | None:
        """Return properties.group-id."""
        properties = self.properties
        return None if properties is None else properties.group_id

    @property
    def subject(self) -> str | None:
        """Return properties.subject, which serves as a routing key."""
        properties = self.properties
        return None if properties is None else properties.subject

    @property
    def head_size(self) -> i64:
        """Return the number of bytes in front of the body; 0 for a foreign format."""
        if not self._located:
            self._locate()
        return self._body_at

    # -- decoding --------------------------------------------------------------------------

    def _locate(self) -> None:
        """Find where the sections begin, in their order (AMQP 1.0 §3.2), without reading them."""
        self._located = True
        message = self.message
        if message.opaque:
            return
        payload = message.payload
        pos = message.header_end
        self._body_at = pos
        try:
            code = section_at(payload, pos)
            if code == MESSAGE_ANNOTATIONS:
                end = section_end(payload, pos)
                self._annotations_at = pos
                pos = end
                self._body_at = pos
                code = section_at(payload, pos)
            if code == PROPERTIES:
                end = section_end(payload, pos)
                self._properties_at = pos
                pos = end
                self._body_at = pos
                code = section_at(payload, pos)
            if code == APPLICATION_PROPERTIES:
                end = section_end(payload, pos)
                self._application_at = pos
                self._body_at = end
        except DecodeError:
            # The sections found so far stay; the rest cannot be read.
            return

    def _read_annotations(self) -> dict[str | int, object]:
        if not self._located:
            self._locate()
        if self._annotations_at < 0:
            return _NO_ANNOTATIONS
        try:
            return decode_message_annotations(self._enter(self._annotations_at)).value
        except DecodeError:
            return _NO_ANNOTATIONS

    def _read_properties(self) -> Properties | None:
        if not self._located:
            self._locate()
        if self._properties_at < 0:
            return None
        try:
            return decode_properties(self._enter(self._properties_at))
        except DecodeError:
            return None

    def _read_application_properties(self) -> dict[str, object]:
        if not self._located:
            self._locate()
        if self._application_at < 0:
            return _NO_PROPERTIES
        try:
            return decode_application_properties(self._enter(self._application_at)).value
        except DecodeError:
            return _NO_PROPERTIES

    def _enter(self, pos: i64) -> Reader:
        """Return a reader behind the descriptor of the section at `pos`."""
        reader = Reader(self.message.payload, pos, len(self.message.payload))
        reader.budget = SECTION_ELEMENTS
        reader.read_descriptor("message")
        return reader


def view_of_sections(
    message: BrokerMessage, header: Header, properties: Properties, application: dict[str, object]
) -> MessageView:
    """Return a view of a message that shows these sections instead of those of the message."""
    view = MessageView(message)
    view._header = header
    view._properties = properties
    view._properties_read = True
    view._application = application
    return view


def view_of(message: BrokerMessage) -> MessageView:
    """Return the view of the message; the same object while it is among those looked at last."""
    view = message.view
    if view is None:
        view = MessageView(message)
        message.view = view
        _memory.keep(message)
    return view


@final
class _Memory:
    """The messages that have a view now: a ring of small messages and the last large one."""

    __slots__ = ("_ring", "_next", "_large")

    def __init__(self) -> None:
        self._ring: list[BrokerMessage | None] = [None] * _RECENT
        self._next: i64 = 0
        self._large: BrokerMessage | None = None

    def keep(self, message: BrokerMessage) -> None:
        """Keep the view of a message; another message may lose its view."""
        if len(message.payload) > _LARGE:
            gone = self._large
            self._large = message
        else:
            at = self._next
            gone = self._ring[at]
            self._ring[at] = message
            self._next = at + 1 if at + 1 < _RECENT else 0
        if gone is not None:
            gone.view = None


_memory: Final = _Memory()
