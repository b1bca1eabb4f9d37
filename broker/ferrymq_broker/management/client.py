"""Asks a management node: over a pair of links where the broker offers them, else over a queue of
its own for the responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self
from uuid import uuid4

import ferrymq
from ferrymq import Message
from ferrymq.aio.pair import Pair
from ferrymq.aio.receiver import Receiver
from ferrymq.aio.sender import Sender
from ferrymq.engine.pairing import LINK_PAIR
from ferrymq_broker.management import ADDRESS
from ferrymq_broker.management.errors import FAILED, ManagementError

# Entities asked for at a time.
_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class ManagementResponse:
    """What came back: a status below 400, its description, the properties and the body."""

    status: int
    description: str
    properties: dict[str, object]
    body: object

    def map(self) -> dict[str, object]:
        """The body, which is a map in most responses. Raises `ManagementError` if it is none."""
        if not isinstance(self.body, dict):
            raise ManagementError(FAILED, "the response is not a map")
        return self.body


class ManagementClient:
    """Requests to the management node of the virtual host that `connection` is in.

        async with ManagementClient(connection) as management:
            await management.create("queue", "orders", {"max-length": 1000})

    Where the connection was made with ``desired_capabilities=[LINK_PAIR]`` and the broker offers
    them, requests and responses go over a pair of links. `timeout` is in seconds, for each request.
    Every method raises `ManagementError` when the broker says no, `TimeoutError`, and what the
    client raises when links or the connection fail.
    """

    def __init__(
        self,
        connection: ferrymq.Connection,
        *,
        address: str = ADDRESS,
        timeout: float | None = 30.0,
    ) -> None:
        self._connection = connection
        self._address = address
        self._timeout = timeout
        self._pair: Pair | None = None
        self._sender: Sender | None = None
        self._receiver: Receiver | None = None
        # One request at a time where responses come over a queue.
        self._turn = asyncio.Lock()

    @property
    def paired(self) -> bool:
        """Whether requests and responses go over a pair of links."""
        return self._pair is not None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Attach the links."""
        connection = self._connection
        desired = connection.options.desired_capabilities or []
        if LINK_PAIR in desired and LINK_PAIR in connection.remote_offered_capabilities:
            self._pair = await connection.pair(self._address)
        else:
            self._receiver = await connection.receiver(None, dynamic=True)
            self._sender = await connection.sender(self._address)

    async def close(self) -> None:
        """Close the links."""
        if self._pair is not None:
            await self._pair.close()
        if self._sender is not None:
            await self._sender.close()
        if self._receiver is not None:
            await self._receiver.close()
        self._pair = self._sender = self._receiver = None

    async def request(
        self,
        operation: str,
        type: str,
        name: str | None = None,
        body: Mapping[str, object] | None = None,
    ) -> ManagementResponse:
        """Any operation on an entity of a type. `body` has attributes or arguments."""
        properties: dict[str, object] = {"operation": operation, "type": type}
        if name is not None:
            properties["name"] = name
        message = Message(
            body=dict(body or {}), message_id=str(uuid4()), application_properties=properties
        )
        if self._pair is not None:
            answer = await self._pair.request(message, timeout=self._timeout)
        else:
            async with self._turn, asyncio.timeout(self._timeout):
                answer = await self._ask(message)
        return _read(answer)

    async def create(
        self, type: str, name: str, attributes: Mapping[str, object] | None = None
    ) -> dict[str, object]:
        """Make an entity; its attributes."""
        return (await self.request("CREATE", type, name, attributes)).map()

    async def read(self, type: str, name: str) -> dict[str, object]:
        """The attributes of an entity."""
        return (await self.request("READ", type, name)).map()

    async def update(
        self, type: str, name: str, attributes: Mapping[str, object]
    ) -> dict[str, object]:
        """Change attributes of an entity; all that it has then."""
        return (await self.request("UPDATE", type, name, attributes)).map()

    async def delete(
        self, type: str, name: str, *, if_empty: bool = False, if_unused: bool = False
    ) -> None:
        """Delete an entity, on condition that it has no messages or no links."""
        body: dict[str, object] = {}
        if if_empty:
            body["if-empty"] = True
        if if_unused:
            body["if-unused"] = True
        await self.request("DELETE", type, name, body)

    async def query(
        self, type: str | None = None, attributes: list[str] | None = None
    ) -> AsyncIterator[dict[str, object]]:
        """All entities of a type, or of every type, with these attributes or all they have."""
        offset = 0
        while True:
            body: dict[str, object] = {"offset": offset, "count": _PAGE}
            if type is not None:
                body["entityType"] = type
            if attributes:
                body["attributeNames"] = attributes
            response = await self.request("QUERY", "org.amqp.management", "self", body)
            table = response.map()
            names, rows = table.get("attributeNames"), table.get("results")
            if not isinstance(names, list) or not isinstance(rows, list):
                raise ManagementError(FAILED, "the response to a QUERY is no table")
            for row in rows:
                yield dict(zip(names, row, strict=True))
            # Entities that went meanwhile are not in the rows, so offsets count what was asked for.
            offset += _PAGE
            total = response.properties.get("total", 0)
            if not isinstance(total, int) or offset >= total:
                return

    async def purge(self, type: str, name: str) -> int:
        """Drop the messages of a queue or subscription that nobody holds; how many there were."""
        return _count(await self.request("PURGE", type, name))

    async def move(
        self, name: str, target: str, count: int | None = None, *, type: str = "queue"
    ) -> int:
        """Send messages that nobody holds on to another address; how many went."""
        body: dict[str, object] = {"target": target}
        if count is not None:
            body["count"] = count
        return _count(await self.request("MOVE", type, name, body))

    async def peek(
        self, type: str, name: str, arguments: Mapping[str, object] | None = None
    ) -> list[dict[str, object]]:
        """Messages as they are, which stay as they are; each with its bytes under ``message``."""
        found = (await self.request("PEEK", type, name, arguments)).map().get("messages")
        return found if isinstance(found, list) else []

    async def _ask(self, message: Message) -> Message:
        sender, receiver = self._sender, self._receiver
        if sender is None or receiver is None:
            raise ManagementError(FAILED, "the client is not open")
        message.reply_to = receiver.address
        await sender.send(message)
        while True:
            delivery = await receiver.receive()
            await delivery.accept()
            # What a request that timed out was answered may come first.
            if delivery.message.correlation_id == message.message_id:
                return delivery.message


def _read(message: Message) -> ManagementResponse:
    properties = message.application_properties
    status = properties.get("statusCode")
    description = properties.get("statusDescription")
    if not isinstance(status, int):
        raise ManagementError(FAILED, "the response has no statusCode")
    text = description if isinstance(description, str) else ""
    if status >= 400:
        raise ManagementError(int(status), text or f"status {status}")
    return ManagementResponse(int(status), text, properties, message.body)


def _count(response: ManagementResponse) -> int:
    count = response.map().get("count")
    return count if isinstance(count, int) else 0
