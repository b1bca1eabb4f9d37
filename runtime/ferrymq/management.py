"""Management over AMQP: requests to a management node, and its responses.

    async with connection.management() as management:
        await management.create("queue", "orders", {"max-length": 1000})
        async for queue in management.query("queue", ["name", "available"]):
            print(queue["name"], queue["available"])

The clients are `ferrymq.ManagementClient` and `ferrymq.blocking.ManagementClient`. This module has
what they share, without I/O: how requests are written and responses are read (AMQP Management 1.0,
a working draft of OASIS). A response that says no is raised as `ManagementError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ferrymq.errors import ManagementError
from ferrymq.message import Message
from ferrymq_codec.scalars import Int

if TYPE_CHECKING:
    from ferrymq_codec.described_types import DescribedTypes

__all__ = [
    "ADDRESS",
    "ManagementError",
    "ManagementResponse",
    "MoveResult",
    "PeekedMessage",
    "Replies",
]

ADDRESS: Final = "$management"
"""The address that management nodes have by convention."""

Replies: TypeAlias = Literal["auto", "pair", "link", "dynamic"]
"""Route of the responses. ``"pair"``: over a pair of links (Link Pairing 1.0). ``"link"``: over a
link from the management node. ``"dynamic"``: to a node that the peer makes. ``"auto"``: a pair if
both opens allow for pairs; otherwise, or if the peer refuses the pair, a link; otherwise a dynamic
node."""

# Entities requested at a time: with all attributes, and with a few of them.
_PAGE: Final = 500
_NARROW_PAGE: Final = 5000
_FEW: Final = 10
_INTERNAL_ERROR: Final = 500


@dataclass(frozen=True, slots=True)
class ManagementResponse:
    """Response of a successful request: `status` is from 200 to 299, as in HTTP."""

    status: int
    description: str
    properties: dict[str, object]
    """The application-properties of the response."""
    body: object

    def map(self) -> dict[str, object]:
        """Return the body, which is a map in most responses. Raises `ManagementError` if it is
        not."""
        if not isinstance(self.body, dict):
            raise ManagementError(_INTERNAL_ERROR, "the response is not a map")
        return self.body

    @property
    def count(self) -> int:
        """Number of messages that the operation concerned; 0 if the response does not state it."""
        count = self.map().get("count")
        return count if isinstance(count, int) else 0


@dataclass(frozen=True, slots=True)
class MoveResult:
    """Result of a MOVE: `count` messages were moved. If the target refused a message, `refused` is
    the reason why no more were moved."""

    count: int
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class PeekedMessage:
    """Message that was read without being removed from its node. `payload` has its encoded
    sections."""

    payload: bytes
    attributes: dict[str, object]
    """Facts that the broker knows of the message: ``sequence``, ``state`` and others in a queue,
    ``partition``, ``offset`` and ``time`` in a stream."""
    types: DescribedTypes | None = field(default=None, repr=False, compare=False)
    """Types of the connection, which become instances of their classes in `message`."""

    @classmethod
    def of(cls, shown: Mapping[str, object], types: DescribedTypes | None = None) -> PeekedMessage:
        """Return the message that a map in the answer to a PEEK describes."""
        attributes = dict(shown)
        payload = attributes.pop("message", None)
        return cls(payload if isinstance(payload, bytes) else b"", attributes, types)

    @property
    def message(self) -> Message:
        """The message, decoded. Raises `DecodeError` if it is malformed."""
        return Message.decode(self.payload, types=self.types)


def encode_request(
    operation: str,
    type: str | None,
    name: str | None,
    body: object,
    properties: Mapping[str, object] | None,
) -> Message:
    """Return the message that requests an operation on an entity."""
    asked: dict[str, object] = dict(properties or {})
    for key, value in (("operation", operation), ("type", type), ("name", name)):
        if value is not None:
            asked[key] = value
    return Message(dict(body) if isinstance(body, Mapping) else body, application_properties=asked)


def read_response(message: Message) -> ManagementResponse:
    """Return a response. Raises `ManagementError` if the operation was not done.

    The names of the draft and those of Azure's services are understood.
    """
    properties = message.application_properties
    status = properties.get("statusCode", properties.get("status-code"))
    description = properties.get("statusDescription", properties.get("status-description"))
    condition = properties.get("errorCondition", properties.get("error-condition"))
    if not isinstance(status, int):
        raise ManagementError(_INTERNAL_ERROR, "the response has no statusCode")
    text = description if isinstance(description, str) else ""
    if not 200 <= status < 300:
        raise ManagementError(
            int(status),
            text or f"status {status}, without a description",
            condition if isinstance(condition, str) else None,
        )
    return ManagementResponse(int(status), text, properties, message.body)


class Query:
    """QUERY that is made page by page. `done` is whether all rows have been read, or `limit` of
    them."""

    def __init__(
        self,
        type: str | None,
        attributes: list[str] | None,
        sort: str | None = None,
        limit: int | None = None,
    ) -> None:
        self.done: bool = limit == 0
        self.body: dict[str, object] = {"attributeNames": list(attributes or [])}
        if sort is not None:
            self.body["sort"] = sort
        self._type = type
        self._limit = limit
        self._page = _NARROW_PAGE if attributes and len(attributes) <= _FEW else _PAGE
        self._offset = 0

    @property
    def properties(self) -> dict[str, object]:
        """The application-properties of the request for the next page."""
        count = self._page
        if self._limit is not None:
            count = min(count, self._limit - self._offset)
        asked: dict[str, object] = {"offset": Int(self._offset), "count": Int(count)}
        return asked if self._type is None else {"entityType": self._type, **asked}

    def read(self, response: ManagementResponse) -> list[dict[str, object]]:
        """Return the entities of a page. Raises `ManagementError` if the response is no page."""
        table = response.map()
        names, rows = table.get("attributeNames"), table.get("results")
        if not isinstance(names, list) or not isinstance(rows, list):
            raise ManagementError(_INTERNAL_ERROR, "the response to a QUERY is no table")
        # There may be fewer rows than requested: the node has a limit of its own, and entities that
        # were deleted meanwhile are missing. Then those behind them have moved up.
        self._offset += len(rows)
        total = response.properties.get("total")
        if not rows or self._offset == self._limit:
            self.done = True
        elif isinstance(total, int):
            self.done = self._offset >= total
        else:
            self.done = len(rows) < self._page
        return [dict(zip(names, row, strict=True)) for row in rows]
