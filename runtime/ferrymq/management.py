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
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from ferrymq.errors import ManagementError
from ferrymq.message import Message
from ferrymq_codec.scalars import Int

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
"""Way of the responses. ``"pair"``: over a pair of links (Link Pairing 1.0). ``"link"``: over a
link from the management node. ``"dynamic"``: to a node that the peer makes. ``"auto"``: a pair if
both opens allow for pairs; else, or where the peer refuses that, a link; else a dynamic node."""

# Entities that are asked for at a time.
_PAGE: Final = 500
_INTERNAL_ERROR: Final = 500


@dataclass(frozen=True, slots=True)
class ManagementResponse:
    """The response to a request that was done: `status` is from 200 to 299, as in HTTP."""

    status: int
    description: str
    properties: dict[str, object]
    """The application-properties of the response."""
    body: object

    def map(self) -> dict[str, object]:
        """Return the body, which is a map in most responses. Raises `ManagementError` if not."""
        if not isinstance(self.body, dict):
            raise ManagementError(_INTERNAL_ERROR, "the response is not a map")
        return self.body

    @property
    def count(self) -> int:
        """Number of messages that the operation has concerned; 0 if the response does not say."""
        count = self.map().get("count")
        return count if isinstance(count, int) else 0


@dataclass(frozen=True, slots=True)
class MoveResult:
    """Result of a MOVE: `count` messages were moved. `refused` is why no more were moved, if the
    target has refused a message."""

    count: int
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class PeekedMessage:
    """A message that was looked at in its node. `payload` has its encoded sections."""

    payload: bytes
    attributes: dict[str, object]
    """Facts that the broker knows of the message: ``sequence``, ``state`` and others in a queue,
    ``partition``, ``offset`` and ``time`` in a stream."""

    @classmethod
    def of(cls, shown: Mapping[str, object]) -> PeekedMessage:
        """Return a message as the map shows it that a PEEK is answered."""
        attributes = dict(shown)
        payload = attributes.pop("message", None)
        return cls(payload if isinstance(payload, bytes) else b"", attributes)

    @property
    def message(self) -> Message:
        """The message, decoded. Raises `DecodeError` if it is malformed."""
        return Message.decode(self.payload)


def encode_request(
    operation: str,
    type: str | None,
    name: str | None,
    body: object,
    properties: Mapping[str, object] | None,
) -> Message:
    """Return the message that asks for an operation on an entity."""
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
    """A QUERY that is made page by page. `done` is whether all rows have been read."""

    def __init__(self, type: str | None, attributes: list[str] | None) -> None:
        self.done = False
        self.body: dict[str, object] = {"attributeNames": list(attributes or [])}
        self._type = type
        self._offset = 0

    @property
    def properties(self) -> dict[str, object]:
        """The application-properties of the request for the next page."""
        asked: dict[str, object] = {"offset": Int(self._offset), "count": Int(_PAGE)}
        return asked if self._type is None else {"entityType": self._type, **asked}

    def read(self, response: ManagementResponse) -> list[dict[str, object]]:
        """Return the entities of a page. Raises `ManagementError` if it is none."""
        table = response.map()
        names, rows = table.get("attributeNames"), table.get("results")
        if not isinstance(names, list) or not isinstance(rows, list):
            raise ManagementError(_INTERNAL_ERROR, "the response to a QUERY is no table")
        # Entities that went meanwhile are not in the rows: offsets count what was asked for.
        self._offset += _PAGE
        total = response.properties.get("total")
        self.done = self._offset >= total if isinstance(total, int) else len(rows) < _PAGE
        return [dict(zip(names, row, strict=True)) for row in rows]
