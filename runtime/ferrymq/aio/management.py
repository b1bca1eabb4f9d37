"""The asyncio client of management nodes; `ferrymq.management` has the format of requests and
responses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Literal

from ferrymq.aio.opening import Opened
from ferrymq.aio.requests import RequestLinks
from ferrymq.engine.pairing import LINK_PAIR
from ferrymq.errors import LinkDetached, SessionEnded
from ferrymq.management import (
    ADDRESS,
    ManagementResponse,
    MoveResult,
    PeekedMessage,
    Query,
    Replies,
    encode_request,
    read_response,
)
from ferrymq.options import Timeout, check_timeout
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq.aio.connection import Connection
    from ferrymq.aio.session import Session


class ManagementClient(Opened):
    """Client of a management node. Made by `Connection.management`.

    Requests may overlap. `timeout` is in seconds, for each request; by default it is the client's,
    which is by default the connection's. Every request raises `ManagementError` when the node
    refuses it, `TimeoutError`, and `LinkDetached`, `SessionEnded` or `ConnectionClosed` when no
    response will come; then the operation may have been done or not.
    """

    def __init__(self, connection: Connection, links: RequestLinks, timeout: Timeout) -> None:
        self._connection = connection
        self._links = links
        self._timeout = timeout

    @property
    def address(self) -> str | None:
        """The node that receives the requests."""
        return self._links.address

    @property
    def replies(self) -> Replies:
        """Way of the responses: ``"pair"``, ``"link"`` or ``"dynamic"``."""
        return self._links.replies

    @property
    def closed(self) -> bool:
        """Whether a link of the client is over: then make a new client."""
        return self._links.closed

    async def request(
        self,
        operation: str,
        type: str | None = None,
        name: str | None = None,
        body: object = None,
        *,
        properties: Mapping[str, object] | None = None,
        timeout: Timeout = "default",
    ) -> ManagementResponse:
        """Request any operation, on the entity of this type and name.

        `body` has the attributes or arguments, most often a map; `properties` are further
        application-properties, such as an ``identity`` in place of a name.
        """
        check_timeout(timeout)
        seconds = self._connection.within(self._timeout if timeout == "default" else timeout)
        message = encode_request(operation, type, name, body, properties)
        return read_response(await self._links.request(message, timeout=seconds))

    async def create(
        self,
        type: str,
        name: str,
        attributes: Mapping[str, object] | None = None,
        *,
        timeout: Timeout = "default",
    ) -> dict[str, object]:
        """Make an entity and return its attributes."""
        return (await self.request("CREATE", type, name, attributes or {}, timeout=timeout)).map()

    async def read(
        self, type: str, name: str, *, timeout: Timeout = "default"
    ) -> dict[str, object]:
        """Return the attributes of an entity."""
        return (await self.request("READ", type, name, {}, timeout=timeout)).map()

    async def update(
        self,
        type: str,
        name: str,
        attributes: Mapping[str, object],
        *,
        timeout: Timeout = "default",
    ) -> dict[str, object]:
        """Change attributes of an entity and return all its attributes."""
        return (await self.request("UPDATE", type, name, attributes, timeout=timeout)).map()

    async def delete(
        self,
        type: str,
        name: str,
        *,
        if_empty: bool = False,
        if_unused: bool = False,
        timeout: Timeout = "default",
    ) -> ManagementResponse:
        """Delete an entity. A broker of ferrymq can be told to delete a node only if it has no
        messages, or no links."""
        wanted = {"if-empty": if_empty, "if-unused": if_unused}
        conditions = {key: value for key, value in wanted.items() if value}
        return await self.request("DELETE", type, name, conditions, timeout=timeout)

    async def query(
        self,
        type: str | None = None,
        attributes: list[str] | None = None,
        *,
        sort: str | None = None,
        limit: int | None = None,
        timeout: Timeout = "default",
    ) -> AsyncIterator[dict[str, object]]:
        """Iterate over entities of a type, or of every type, with these attributes or with all.

        `sort` is an attribute by which ferrymq sorts, ``-name`` in descending order; `limit` is how
        many entities to return at most. Entities are requested page by page; `timeout` is for each
        page.
        """
        query = Query(type, attributes, sort, limit)
        while not query.done:
            for row in await self.page(query, timeout):
                yield row

    async def purge(self, type: str, name: str, *, timeout: Timeout = "default") -> int:
        """Delete the messages of a queue, subscription or stream of ferrymq that no consumer holds,
        and return their number."""
        return (await self.request("PURGE", type, name, {}, timeout=timeout)).count

    async def move(
        self,
        name: str,
        target: str,
        count: int | None = None,
        *,
        type: str = "queue",
        timeout: Timeout = "default",
    ) -> MoveResult:
        """Move the messages of a queue or subscription of ferrymq that no consumer holds to another
        address, at most `count` of them; the broker moves up to 10 000 in a request."""
        body = {"target": target} if count is None else {"target": target, "count": count}
        response = await self.request("MOVE", type, name, body, timeout=timeout)
        refused = response.map().get("refused")
        return MoveResult(response.count, refused if isinstance(refused, str) else None)

    async def peek(
        self,
        type: str,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        timeout: Timeout = "default",
    ) -> list[PeekedMessage]:
        """Return messages of a node of ferrymq, which stay there unchanged; `arguments` are
        ``count``, ``from-sequence`` and so on."""
        response = await self.request("PEEK", type, name, arguments or {}, timeout=timeout)
        found = response.map().get("messages")
        types = self._connection.types
        return [PeekedMessage.of(one, types) for one in found] if isinstance(found, list) else []

    async def close(self) -> None:
        """Close the links. Waiting requests end with `LinkDetached`."""
        await self._links.close()

    # ── For the client ─────────────────────────────────────────────────────────────────────────

    async def page(self, query: Query, timeout: Timeout) -> list[dict[str, object]]:
        """Return the next page of a query."""
        response = await self.request(
            "QUERY",
            "org.amqp.management",
            "self",
            query.body,
            properties=query.properties,
            timeout=timeout,
        )
        return query.read(response)


async def open_management(
    place: Connection | Session,
    connection: Connection,
    address: str,
    replies: Replies,
    timeout: Timeout,
) -> ManagementClient:
    """Attach the links of a client, in the session `place` or in one that the connection has for
    them."""
    links = await _open_links(place, connection, address, replies, timeout)
    return ManagementClient(connection, links, timeout)


async def _open_links(
    place: Connection | Session,
    connection: Connection,
    address: str,
    replies: Replies,
    timeout: Timeout,
) -> RequestLinks:
    peer = connection.peer
    if address == ADDRESS and peer.managed_by:
        # RabbitMQ would make a queue of this name.
        reason = f"{peer} has no such node: use {peer.managed_by}"
        error = Error(condition="amqp:not-implemented", description=reason)
        raise LinkDetached(repr(address), error)
    ways: list[Literal["pair", "link", "dynamic"]]
    if replies != "auto":
        ways = [replies]
    elif (
        LINK_PAIR in (connection.options.desired_capabilities or ())
        and LINK_PAIR in connection.remote_offered_capabilities
    ):
        ways = ["pair", "link", "dynamic"]
    else:
        ways = ["link", "dynamic"]
    first: LinkDetached | None = None
    for way in ways:
        try:
            return await place.with_session(_opener(address, way, timeout))
        except LinkDetached as refused:
            # The first refusal says more than the peer's answer about a dynamic node.
            first = first or refused
        except SessionEnded:
            if first is None:
                raise
            # The first refusal has ended the session.
            break
    assert first is not None, "there is a way"
    raise first


def _opener(
    address: str, way: Literal["pair", "link", "dynamic"], timeout: Timeout
) -> Callable[[Session], Awaitable[RequestLinks]]:
    return lambda session: RequestLinks(session, address, way, timeout=timeout).open()
