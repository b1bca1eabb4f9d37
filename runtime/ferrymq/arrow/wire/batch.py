"""The columns of one batch while they are filled from messages."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from ferrymq.arrow.wire.columns import Booleans, Maps, Numbers, Texts
from ferrymq.arrow.wire.entries import EntryPlaces

FOREIGN: Final = b"foreign"
MALFORMED: Final = b"malformed"

TEXTS: Final = frozenset(
    [
        "body",
        "bodyType",
        "partitionKey",
        "messageId",
        "correlationId",
        "userId",
        "to",
        "subject",
        "replyTo",
        "contentType",
        "contentEncoding",
        "groupId",
        "replyToGroupId",
    ]
)
NUMBERS: Final = frozenset(
    [
        "partition",
        "offset",
        "enqueuedTime",
        "absoluteExpiryTime",
        "creationTime",
        "groupSequence",
        "priority",
        "ttl",
        "deliveryCount",
    ]
)
BOOLEANS: Final = frozenset(["durable", "firstAcquirer"])
MAPS: Final = frozenset(
    ["applicationProperties", "messageAnnotations", "deliveryAnnotations", "footer"]
)

VERBATIM: Final = frozenset(["body", "partitionKey", "applicationProperties"])
"""The columns that a verbatim batch has as bytes."""

# Bytes that may be rendered for a column, at most.
_MAX_BYTES: Final = 1 << 30

# Default values of a missing header (AMQP 1.0 §3.2.1).
_PRIORITY: Final = 4


@final
class Batch:
    """Columns of `names`, in `texts`, `numbers`, `booleans` and `maps` by their kind.

    Columns that were not requested are None. Messages are in `data`. A row is complete when each
    column has a value for it: `complete` adds the values that the message did not have, `unread`
    adds a row for a message that cannot be read.

    In a `verbatim` batch the columns of `VERBATIM` have the bytes of strings and of binary.
    """

    __slots__ = (
        "texts",
        "numbers",
        "booleans",
        "maps",
        "body",
        "body_type",
        "message_id",
        "user_id",
        "to",
        "subject",
        "reply_to",
        "correlation_id",
        "content_type",
        "content_encoding",
        "absolute_expiry_time",
        "creation_time",
        "group_id",
        "group_sequence",
        "reply_to_group_id",
        "durable",
        "priority",
        "ttl",
        "first_acquirer",
        "delivery_count",
        "application_properties",
        "message_annotations",
        "delivery_annotations",
        "footer",
        "places",
        "_texts",
        "_numbers",
        "_booleans",
        "_maps",
    )

    def __init__(self, names: list[str], data: bytes, verbatim: bool = False) -> None:
        texts: dict[str, Texts] = {}
        numbers: dict[str, Numbers] = {}
        booleans: dict[str, Booleans] = {}
        maps: dict[str, Maps] = {}
        for name in names:
            exact = verbatim and name in VERBATIM
            if name in TEXTS:
                texts[name] = Texts(data, _MAX_BYTES, exact)
            elif name in NUMBERS:
                numbers[name] = Numbers()
            elif name in BOOLEANS:
                booleans[name] = Booleans()
            else:
                maps[name] = Maps(data, _MAX_BYTES, exact)
        self.texts: dict[str, Texts] = texts
        self.numbers: dict[str, Numbers] = numbers
        self.booleans: dict[str, Booleans] = booleans
        self.maps: dict[str, Maps] = maps
        self.body: Texts | None = texts.get("body")
        self.body_type: Texts | None = texts.get("bodyType")
        self.message_id: Texts | None = texts.get("messageId")
        self.user_id: Texts | None = texts.get("userId")
        self.to: Texts | None = texts.get("to")
        self.subject: Texts | None = texts.get("subject")
        self.reply_to: Texts | None = texts.get("replyTo")
        self.correlation_id: Texts | None = texts.get("correlationId")
        self.content_type: Texts | None = texts.get("contentType")
        self.content_encoding: Texts | None = texts.get("contentEncoding")
        self.absolute_expiry_time: Numbers | None = numbers.get("absoluteExpiryTime")
        self.creation_time: Numbers | None = numbers.get("creationTime")
        self.group_id: Texts | None = texts.get("groupId")
        self.group_sequence: Numbers | None = numbers.get("groupSequence")
        self.reply_to_group_id: Texts | None = texts.get("replyToGroupId")
        self.durable: Booleans | None = booleans.get("durable")
        self.priority: Numbers | None = numbers.get("priority")
        self.ttl: Numbers | None = numbers.get("ttl")
        self.first_acquirer: Booleans | None = booleans.get("firstAcquirer")
        self.delivery_count: Numbers | None = numbers.get("deliveryCount")
        self.application_properties: Maps | None = maps.get("applicationProperties")
        self.message_annotations: Maps | None = maps.get("messageAnnotations")
        self.delivery_annotations: Maps | None = maps.get("deliveryAnnotations")
        self.footer: Maps | None = maps.get("footer")
        self.places: EntryPlaces = EntryPlaces()
        self.places.partition_key = texts.get("partitionKey")
        self.places.partition = numbers.get("partition")
        self.places.offset = numbers.get("offset")
        self.places.time = numbers.get("enqueuedTime")
        self._texts = list(texts.values())
        self._numbers = list(numbers.values())
        self._booleans = list(booleans.values())
        self._maps = list(maps.values())

    def complete(self, row: i64) -> None:
        """Complete a row: each column without a value gets its default."""
        durable = self.durable
        if durable is not None and durable.validity.rows == row:
            durable.put(False)
        first_acquirer = self.first_acquirer
        if first_acquirer is not None and first_acquirer.validity.rows == row:
            first_acquirer.put(False)
        priority = self.priority
        if priority is not None and priority.validity.rows == row:
            priority.put(_PRIORITY)
        count = self.delivery_count
        if count is not None and count.validity.rows == row:
            count.put(0)
        self._complete(row)

    def unread(self, row: i64, start: i64, size: i64, kind: bytes) -> None:
        """Add a row for an unreadable message of this `kind`, whose bytes become the body."""
        for text in self._texts:
            if text.validity.rows > row:
                text.pop()
        for number in self._numbers:
            if number.validity.rows > row:
                number.pop()
        for boolean in self._booleans:
            if boolean.validity.rows > row:
                boolean.pop()
        for each in self._maps:
            if each.validity.rows > row:
                each.pop()
        body = self.body
        if body is not None:
            body.view(start, size)
        body_type = self.body_type
        if body_type is not None:
            body_type.text(kind)
        self._complete(row)

    def _complete(self, row: i64) -> None:
        for text in self._texts:
            if text.validity.rows == row:
                text.null()
        for number in self._numbers:
            if number.validity.rows == row:
                number.null()
        for boolean in self._booleans:
            if boolean.validity.rows == row:
                boolean.null()
        for each in self._maps:
            if each.validity.rows == row:
                each.null()
