"""Management of RabbitMQ 4 over AMQP 1.0: queues, exchanges and bindings.

    async with rabbitmq.management(connection) as management:
        queue = await management.declare_queue("orders", type="quorum")
        print(queue.message_count)

RabbitMQ ends the session of a request for which the user has no permission, and of one that it does
not know. So the management has a session of its own, and begins another one when that happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Unpack

from ferrymq.aio.opening import Opened, Opening
from ferrymq.aio.requests import RequestLinks
from ferrymq.errors import LinkDetached, SessionEnded
from ferrymq.options import Timeout, check_timeout
from ferrymq.peers import RABBITMQ_MANAGEMENT
from ferrymq.rabbitmq.arguments import QueueArguments, QueueType, queue_arguments
from ferrymq.rabbitmq.errors import AccessRefused
from ferrymq.rabbitmq.requests import (
    ADDRESS,
    Binding,
    QueueInfo,
    bindings_path,
    destination,
    encode_request,
    exchange_path,
    queue_path,
    read_bindings,
    read_count,
    read_queue,
    read_response,
)

if TYPE_CHECKING:
    from ferrymq.aio.connection import Connection
    from ferrymq.aio.session import Session


def management(connection: Connection, *, timeout: Timeout = "default") -> Opening[Management]:
    """Open the management of the RabbitMQ that a connection leads to; `timeout` is for each
    request, by default the connection's.

    Raises `LinkDetached` and `SessionEnded` if the peer has no such management: RabbitMQ has it
    since version 4.0. Raises `TimeoutError`.
    """
    check_timeout(timeout)

    async def open() -> Management:
        opened = Management(connection, timeout)
        await opened.attach()
        return opened

    return Opening(open, "rabbitmq.management(connection)")


class Management(Opened):
    """Management of the virtual host that a connection is in. Made by `management`.

    Requests are made one after the other. Every request raises `RabbitMQError` when RabbitMQ
    refuses it: `NotFound`, `PreconditionFailed`, `AccessRefused`, `BadRequest`; `TimeoutError`, and
    `SessionEnded` or `ConnectionClosed` when no response will come: then it may have been done or
    not. `timeout` is by default that of the management.
    """

    def __init__(self, connection: Connection, timeout: Timeout) -> None:
        self._connection = connection
        self._timeout = timeout
        self._open: tuple[Session, RequestLinks] | None = None
        self._left = False
        # A request that RabbitMQ answers with the end of the session must be alone on it.
        self._turn = asyncio.Lock()

    # ── For users ──────────────────────────────────────────────────────────────────────────────

    @property
    def closed(self) -> bool:
        """Whether the management was closed, or its connection is over."""
        return self._left or self._connection.closed

    async def declare_queue(
        self,
        name: str,
        *,
        type: QueueType | None = None,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, object] | None = None,
        timeout: Timeout = "default",
        **options: Unpack[QueueArguments],
    ) -> QueueInfo:
        """Make a queue or stream unless it exists, and return what RabbitMQ says of it.

        `type` is by default that of the virtual host. `options` are those of `QueueArguments`;
        `arguments` are others, under the names that RabbitMQ gives them. Raises
        `PreconditionFailed` if it exists with other properties.
        """
        body = {
            "durable": durable,
            "exclusive": exclusive,
            "auto_delete": auto_delete,
            "arguments": queue_arguments(type, options, arguments),
        }
        return read_queue(await self.request("PUT", queue_path(name), body, timeout=timeout))

    async def get_queue(self, name: str, *, timeout: Timeout = "default") -> QueueInfo:
        """Return what RabbitMQ says of a queue or stream. Raises `NotFound`."""
        return read_queue(await self.request("GET", queue_path(name), timeout=timeout))

    async def delete_queue(self, name: str, *, timeout: Timeout = "default") -> int:
        """Delete a queue or stream with its messages, and return their number, which is 0 also if
        there is no such queue."""
        return read_count(await self.request("DELETE", queue_path(name), timeout=timeout))

    async def purge_queue(self, name: str, *, timeout: Timeout = "default") -> int:
        """Delete the messages of a queue that no consumer holds, and return their number. Raises
        `NotFound`."""
        path = f"{queue_path(name)}/messages"
        return read_count(await self.request("DELETE", path, timeout=timeout))

    async def declare_exchange(
        self,
        name: str,
        *,
        type: str = "direct",
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, object] | None = None,
        timeout: Timeout = "default",
    ) -> None:
        """Make an exchange unless it exists. `type` is ``direct``, ``fanout``, ``topic``,
        ``headers`` or that of a plugin.

        Raises `PreconditionFailed` if it exists with other properties, `BadRequest` for a type that
        there is not.
        """
        body = {
            "type": type,
            "durable": durable,
            "auto_delete": auto_delete,
            "internal": internal,
            "arguments": dict(arguments or {}),
        }
        await self.request("PUT", exchange_path(name), body, timeout=timeout)

    async def delete_exchange(self, name: str, *, timeout: Timeout = "default") -> None:
        """Delete an exchange with its bindings, if there is one."""
        await self.request("DELETE", exchange_path(name), timeout=timeout)

    async def bind(
        self,
        source: str,
        *,
        queue: str | None = None,
        exchange: str | None = None,
        key: str = "",
        arguments: Mapping[str, object] | None = None,
        timeout: Timeout = "default",
    ) -> None:
        """Bind the exchange `source` to a queue or to another exchange. Raises `NotFound` if one of
        them does not exist."""
        kind, name = destination(queue, exchange)
        body = {
            "source": source,
            f"destination_{kind}": name,
            "binding_key": key,
            "arguments": dict(arguments or {}),
        }
        await self.request("POST", "/bindings", body, timeout=timeout)

    async def unbind(
        self,
        source: str,
        *,
        queue: str | None = None,
        exchange: str | None = None,
        key: str = "",
        arguments: Mapping[str, object] | None = None,
        timeout: Timeout = "default",
    ) -> None:
        """Delete the binding of `source` that has this key and these arguments, if there is one."""
        found = await self.bindings(
            source, queue=queue, exchange=exchange, key=key, timeout=timeout
        )
        for binding in found:
            if binding.arguments == dict(arguments or {}):
                await self.request("DELETE", binding.location, timeout=timeout)

    async def bindings(
        self,
        source: str,
        *,
        queue: str | None = None,
        exchange: str | None = None,
        key: str = "",
        timeout: Timeout = "default",
    ) -> list[Binding]:
        """Return the bindings of `source` to a queue or an exchange that have this key; they have
        different arguments. RabbitMQ does not list bindings of all keys or of all exchanges."""
        path = bindings_path(source, *destination(queue, exchange), key)
        return read_bindings(await self.request("GET", path, timeout=timeout))

    async def request(
        self, verb: str, path: str, body: object = None, *, timeout: Timeout = "default"
    ) -> Any:
        """Make any request, such as ``PUT /queues/orders``, and return the body of the response.

        `path` is percent-encoded. RabbitMQ ends the session for a request that it does not know,
        which raises `SessionEnded`.
        """
        check_timeout(timeout)
        seconds = self._connection.within(self._timeout if timeout == "default" else timeout)
        message = encode_request(verb, path, body)
        async with self._turn:
            links = await self.attach()
            try:
                response = await links.request(message, timeout=seconds)
            except SessionEnded as error:
                if error.error is None or error.condition != "amqp:unauthorized-access":
                    raise
                text = error.error.description or str(error)
                raise AccessRefused(HTTPStatus.FORBIDDEN, text, error.condition) from error
        return read_response(response)

    async def close(self) -> None:
        """End the session of the management. A waiting request ends with `SessionEnded`."""
        self._left = True
        opened, self._open = self._open, None
        if opened is not None:
            session, _ = opened
            await session.close()

    # ── For the client ─────────────────────────────────────────────────────────────────────────

    async def attach(self) -> RequestLinks:
        """Return the links; attach them in a new session if there are none."""
        if self._left:
            raise LinkDetached(f"{ADDRESS!r}: the management was closed on this side")
        if self._open is not None:
            if not self._open[1].closed:
                return self._open[1]
            await self._open[0].close()
            self._open = None
        self._expect()
        session = await self._connection.open_session()
        try:
            links = RequestLinks(session, ADDRESS, "pair", settled=True, timeout=self._timeout)
            await links.open()
        except BaseException:
            await session.close()
            raise
        self._open = session, links
        return links

    def _expect(self) -> None:
        """Raise `LinkDetached` if the peer is a RabbitMQ without this management."""
        peer = self._connection.peer
        if peer.managed_by not in ("", RABBITMQ_MANAGEMENT):
            raise LinkDetached(
                f"{ADDRESS!r}: {peer} has no management over AMQP 1.0, which came with 4.0"
            )
