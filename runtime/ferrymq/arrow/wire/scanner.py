"""Scanner of consecutive messages into columns, which reads only the requested parts.

A section that no column needs is skipped by its size, and the scan of a message stops after the
last section that a column needs. A message is therefore checked only as far as it is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

from librt.strings import read_i32_le
from mypy_extensions import i64

from ferrymq.arrow.wire.batch import FOREIGN, MALFORMED, Batch
from ferrymq.arrow.wire.entries import add_annotations, add_properties
from ferrymq.arrow.wire.values import (
    add_binary,
    add_id,
    add_json,
    add_string,
    add_symbol,
    add_text,
    add_time,
    add_uint,
    enter_variable,
    skip,
)
from ferrymq_codec import codes
from ferrymq_codec.errors import DecodeError
from ferrymq_codec.limits import MAX_ELEMENTS
from ferrymq_codec.reader import Reader
from ferrymq_codec.values import read_list, read_value
from ferrymq_types import descriptors
from ferrymq_types.unions import CODES

# The order of sections in a message, except the body.
_HEADER: Final = 1
_DELIVERY_ANNOTATIONS: Final = 2
_MESSAGE_ANNOTATIONS: Final = 3
_PROPERTIES: Final = 4
_APPLICATION_PROPERTIES: Final = 5
_FOOTER: Final = 6

# Kinds of bodies.
_NONE: Final = 0
_DATA: Final = 1
_VALUE: Final = 2
_SEQUENCE: Final = 3

# The values of `bodyType` for them.
_TYPE_DATA: Final = b"data"
_TYPE_VALUE: Final = b"value"
_TYPE_SEQUENCE: Final = b"sequence"

# The highest priority that the column can hold: one byte with a sign.
_MAX_PRIORITY: Final = 127

# The fields of properties, in their order (AMQP 1.0 §3.2.4).
_FIELDS: Final = (
    "messageId",
    "userId",
    "to",
    "subject",
    "replyTo",
    "correlationId",
    "contentType",
    "contentEncoding",
    "absoluteExpiryTime",
    "creationTime",
    "groupId",
    "groupSequence",
    "replyToGroupId",
)
_HEADER_FIELDS: Final = frozenset(["durable", "priority", "ttl", "firstAcquirer", "deliveryCount"])
_PLACES: Final = frozenset(["partitionKey", "partition", "offset", "enqueuedTime"])


@final
class MessageScanner:
    """Scanner of messages into a `Batch` of the columns named, which may be `verbatim`."""

    __slots__ = (
        "_names",
        "_verbatim",
        "_reader",
        "_batch",
        "_last",
        "_fields",
        "_wants_header",
        "_wants_body",
        "_wants_delivery_annotations",
        "_wants_message_annotations",
        "_wants_application_properties",
        "_wants_footer",
    )

    def __init__(self, columns: Iterable[str], verbatim: bool = False) -> None:
        self._names = list(columns)
        self._verbatim: bool = verbatim
        self._reader = Reader(b"")
        self._batch = Batch(self._names, b"", verbatim)
        names = set(self._names)
        self._fields: i64 = 0
        for i, name in enumerate(_FIELDS):
            if name in names:
                self._fields = i + 1
        self._wants_header = bool(names & _HEADER_FIELDS)
        self._wants_body = "body" in names or "bodyType" in names
        self._wants_delivery_annotations = "deliveryAnnotations" in names
        self._wants_message_annotations = "messageAnnotations" in names or bool(names & _PLACES)
        self._wants_application_properties = "applicationProperties" in names
        self._wants_footer = "footer" in names
        # The last section that is needed.
        self._last: i64 = 0
        if self._wants_footer or self._wants_body:
            self._last = _FOOTER
        elif self._wants_application_properties:
            self._last = _APPLICATION_PROPERTIES
        elif self._fields > 0:
            self._last = _PROPERTIES
        elif self._wants_message_annotations:
            self._last = _MESSAGE_ANNOTATIONS
        elif self._wants_delivery_annotations:
            self._last = _DELIVERY_ANNOTATIONS
        elif self._wants_header:
            self._last = _HEADER

    def scan(
        self, data: bytes, count: i64, ends_at: i64, formats_at: i64, payloads_at: i64
    ) -> Batch:
        """Return a batch with a row for each of `count` messages in `data`, in the layout of a
        chunk.

        `ends_at`, `formats_at` and `payloads_at` are as in `ferrymq.chunks.Chunk`, and checked.
        """
        batch = Batch(self._names, data, self._verbatim)
        self._batch = batch
        r = self._reader
        r.reset(data, 0, len(data))
        start = payloads_at
        row: i64 = 0
        while row < count:
            end = payloads_at + i64(read_i32_le(data, ends_at + 4 * (row + 1)))
            if formats_at >= 0 and read_i32_le(data, formats_at + 4 * row) != 0:
                batch.unread(row, start, end - start, FOREIGN)
            else:
                r.pos = start
                r.end = end
                r.depth = 0
                r.budget = MAX_ELEMENTS
                try:
                    self._message()
                    batch.complete(row)
                except DecodeError:
                    batch.unread(row, start, end - start, MALFORMED)
            start = end
            row += 1
        return batch

    def _message(self) -> None:
        r = self._reader
        data = r.data
        end = r.end
        wants_body = self._wants_body
        last = self._last
        body = self._batch.body
        kind: i64 = _NONE
        start: i64 = 0
        size: i64 = 0
        mark: i64 = -1
        elements: list[object] | None = None
        latest: i64 = 0
        while r.pos < end:
            code: i64
            pos = r.pos
            if (
                pos + 3 <= end
                and i64(data[pos]) == codes.DESCRIBED
                and i64(data[pos + 1]) == codes.SMALL_ULONG
            ):
                code = data[pos + 2]
                r.pos = pos + 3
            else:
                code = r.read_descriptor("message")
                if code == -1:
                    code = CODES.get(r.symbol, -2)
            if code == descriptors.DATA:
                if kind != _NONE:
                    if kind != _DATA:
                        r.fail("message", "data after another kind of body")
                    r.charge(1, "message")
                if body is None:
                    skip(r, "data")
                else:
                    length = enter_variable(r, codes.BINARY8, codes.BINARY32, "data")
                    if kind == _NONE:
                        start = r.pos
                        size = length
                    else:
                        if mark < 0:
                            mark = body.open()
                            body.part(start, size)
                        body.part(r.pos, length)
                    r.pos += length
                kind = _DATA
            elif code == descriptors.AMQP_VALUE:
                if kind != _NONE:
                    r.fail("message", "amqp-value after another body")
                kind = _VALUE
                if body is None:
                    skip(r, "amqp-value")
                elif body.verbatim:
                    add_text(r, body, "amqp-value")
                else:
                    start = r.pos
                    add_json(body, read_value(r, "amqp-value"), r.pos - start)
            elif code == descriptors.AMQP_SEQUENCE:
                if kind != _NONE:
                    if kind != _SEQUENCE:
                        r.fail("message", "amqp-sequence after another kind of body")
                    r.charge(1, "message")
                kind = _SEQUENCE
                if body is None:
                    skip(r, "amqp-sequence")
                else:
                    start = r.pos
                    items = read_list(r, "amqp-sequence")
                    size += r.pos - start
                    if elements is None:
                        elements = items
                    else:
                        elements.extend(items)
            else:
                if code == descriptors.PROPERTIES:
                    rank = _PROPERTIES
                elif code == descriptors.APPLICATION_PROPERTIES:
                    rank = _APPLICATION_PROPERTIES
                elif code == descriptors.MESSAGE_ANNOTATIONS:
                    rank = _MESSAGE_ANNOTATIONS
                elif code == descriptors.HEADER:
                    rank = _HEADER
                elif code == descriptors.DELIVERY_ANNOTATIONS:
                    rank = _DELIVERY_ANNOTATIONS
                elif code == descriptors.FOOTER:
                    rank = _FOOTER
                else:
                    r.fail("message", "not a section")
                if rank <= latest:
                    r.fail("message", "a section in the wrong place")
                if rank > last:
                    break
                self._section(rank)
                latest = rank
                if rank == last and not wants_body:
                    break
        self._end_body(kind, start, size, mark, elements)

    def _end_body(
        self, kind: i64, start: i64, size: i64, mark: i64, elements: list[object] | None
    ) -> None:
        body = self._batch.body
        body_type = self._batch.body_type
        if kind == _DATA:
            if body is not None:
                if mark < 0:
                    body.view(start, size)
                else:
                    body.close(mark)
            if body_type is not None:
                body_type.text(_TYPE_DATA)
        elif kind == _VALUE:
            if body_type is not None:
                body_type.text(_TYPE_VALUE)
        elif kind == _SEQUENCE:
            if body is not None and elements is not None:
                add_json(body, elements, size)
            if body_type is not None:
                body_type.text(_TYPE_SEQUENCE)

    def _section(self, rank: i64) -> None:
        r = self._reader
        batch = self._batch
        if rank == _PROPERTIES:
            if self._fields > 0:
                self._properties()
                return
        elif rank == _APPLICATION_PROPERTIES:
            properties = batch.application_properties
            if properties is not None:
                add_properties(r, properties)
                return
        elif rank == _MESSAGE_ANNOTATIONS:
            if self._wants_message_annotations:
                add_annotations(r, batch.message_annotations, batch.places, "message-annotations")
                return
        elif rank == _HEADER:
            if self._wants_header:
                self._header()
                return
        elif rank == _DELIVERY_ANNOTATIONS:
            if self._wants_delivery_annotations:
                add_annotations(r, batch.delivery_annotations, None, "delivery-annotations")
                return
        elif self._wants_footer:
            add_annotations(r, batch.footer, None, "footer")
            return
        skip(r, "message")

    def _header(self) -> None:
        r = self._reader
        batch = self._batch
        outer = r.end
        count = r.enter_list("header")
        if count > 0 and not r.take_null():
            durable = r.read_boolean("header.durable")
            if batch.durable is not None:
                batch.durable.put(durable)
        if count > 1 and not r.take_null():
            priority = r.read_ubyte("header.priority")
            if batch.priority is not None:
                batch.priority.put(priority if priority < _MAX_PRIORITY else _MAX_PRIORITY)
        if count > 2:
            add_uint(r, batch.ttl, "header.ttl")
        if count > 3 and not r.take_null():
            first_acquirer = r.read_boolean("header.first-acquirer")
            if batch.first_acquirer is not None:
                batch.first_acquirer.put(first_acquirer)
        if count > 4:
            add_uint(r, batch.delivery_count, "header.delivery-count")
        if count > 5:
            r.skip_appended(count, 5, "header")
        r.leave(outer, "header")

    def _properties(self) -> None:
        r = self._reader
        batch = self._batch
        outer = r.end
        count = r.enter_list("properties")
        # Fields after the last known one are checked, so those before them must be read.
        wanted = 13 if count > 13 else self._fields
        there = count
        if count > wanted:
            count = wanted
        if count > 0:
            add_id(r, batch.message_id, "properties.message-id")
        if count > 1:
            add_binary(r, batch.user_id, "properties.user-id")
        if count > 2:
            add_string(r, batch.to, "properties.to")
        if count > 3:
            add_string(r, batch.subject, "properties.subject")
        if count > 4:
            add_string(r, batch.reply_to, "properties.reply-to")
        if count > 5:
            add_id(r, batch.correlation_id, "properties.correlation-id")
        if count > 6:
            add_symbol(r, batch.content_type, "properties.content-type")
        if count > 7:
            add_symbol(r, batch.content_encoding, "properties.content-encoding")
        if count > 8:
            add_time(r, batch.absolute_expiry_time, "properties.absolute-expiry-time")
        if count > 9:
            add_time(r, batch.creation_time, "properties.creation-time")
        if count > 10:
            add_string(r, batch.group_id, "properties.group-id")
        if count > 11:
            add_uint(r, batch.group_sequence, "properties.group-sequence")
        if count > 12:
            add_string(r, batch.reply_to_group_id, "properties.reply-to-group-id")
        if there > 13:
            r.skip_appended(there, 13, "properties")
        elif count < there:
            # Parts that no column needs are skipped.
            r.pos = r.end
        r.leave(outer, "properties")
