"""The asyncio client of management nodes; what requests and responses look like is in
`ferrymq.management`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Literal

from ferrymq.aio.requests import RequestLinks
from ferrymq.engine.pairing import LINK_PAIR
from ferrymq.errors import LinkDetached
from ferrymq.management import (
    ManagementResponse,
    MoveResult,
    PeekedMessage,
    Query,
    Replies,
    encode_request,
    read_response,
)
from ferrymq.options import Timeout, check_timeout

if TYPE_CHECKING:
    from ferrymq.aio.session import Session


class ManagementClient:
    """Requests to a management node. Made by `Connection.management`.

    Requests may overlap. `timeout` is in seconds, for each request; by default it is the client's,
    which is by default the connection's. Every request raises `ManagementError` when the node says
    no, `TimeoutError`, and `LinkDetached`, `SessionEnded` or `ConnectionClosed` when there will be
    no response; then it is not known whether the operation was done.
    """

    def __init__(self, session: Session, links: RequestLinks, timeout: Timeout) -> None:
        self._connection = session.connection
        self._links = links
        self._timeout = timeout

    @property
    def address(self) -> str | None:
        """The node that requests go to."""
        return self._links.address

    @property
    def replies(self) -> Replies:
        """Way of the responses: ``"pair"``, ``"link"`` or ``"dynamic"``."""
        return self._links.replies

    @property
    def closed(self) -> bool:
        """Whether a link of the client is over: then make another one."""
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
        """Ask for any operation, on the entity of this type and name.

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
        """Change attributes of an entity and return all that it has then."""
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
        """Delete an entity. A broker of ferrymq can be told to do so only if a node has no
        messages, or no links."""
        wanted = {"if-empty": if_empty, "if-unused": if_unused}
        conditions = {key: value for key, value in wanted.items() if value}
        return await self.request("DELETE", type, name, conditions, timeout=timeout)

    async def query(
        self,
        type: str | None = None,
        attributes: list[str] | None = None,
        *,
        timeout: Timeout = "default",
    ) -> AsyncIterator[dict[str, object]]:
        """Iterate over all entities of a type, or of every type, with these attributes or with all
        they have. They are asked for page by page; `timeout` is for each page."""
        query = Query(type, attributes)
        while not query.done:
            for row in await self.page(query, timeout):
                yield row

    async def purge(self, type: str, name: str, *, timeout: Timeout = "default") -> int:
        """Drop the messages of a queue, subscription or stream of ferrymq that no consumer holds,
        and return how many there were."""
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
        """Send the messages of a queue or subscription of ferrymq that no consumer holds on to
        another address, at most `count` of them; the broker moves up to 10 000 in a request."""
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
        """Return messages of a node of ferrymq, which stay there as they are; `arguments` are
        ``count``, ``from-sequence`` and so on."""
        response = await self.request("PEEK", type, name, arguments or {}, timeout=timeout)
        found = response.map().get("messages")
        return [PeekedMessage.of(one) for one in found] if isinstance(found, list) else []

    async def close(self) -> None:
        """Close the links. Requests that wait end with `LinkDetached`."""
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
    session: Session, address: str, replies: Replies, timeout: Timeout
) -> ManagementClient:
    """Attach the links of a client."""
    links = await _open_links(session, address, replies, timeout)
    return ManagementClient(session, links, timeout)


async def _open_links(
    session: Session, address: str, replies: Replies, timeout: Timeout
) -> RequestLinks:
    connection = session.connection
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
            return await RequestLinks(session, address, way, timeout=timeout).open()
        except LinkDetached as refused:
            # It tells more than what the peer says of a dynamic node.
            first = first or refused
    assert first is not None, "there is a way"
    raise first
