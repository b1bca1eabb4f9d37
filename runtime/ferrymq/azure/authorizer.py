"""Tokens of one connection: put at the node ``$cbs`` for each entity, before a link to it is
attached, and put again before they expire (claims-based security)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final
from weakref import ref

from ferrymq.aio.requests import RequestLinks
from ferrymq.azure.addresses import audience_of
from ferrymq.azure.credentials import IssuedToken, TokenProvider
from ferrymq.errors import AmqpError, ConnectionClosed, LinkDetached, ManagementError
from ferrymq.management import encode_request, read_response
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq.aio.connection import Connection
    from ferrymq.aio.session import Session
    from ferrymq.aio.transport import EngineTransport

LOGGER: Final = logging.getLogger("ferrymq")

ADDRESS: Final = "$cbs"
# The part of a token's life after which another one is put.
_RENEWED: Final = 0.8
# Seconds until a renewal that failed is tried again, and between two of them at least.
_AGAIN: Final = 30.0
_LEAST: Final = 1.0


class TokenRefused(LinkDetached):
    """The service refused the token for a link, which was not attached.

    `audience` is the URI that the token is for, `status` the service's status, such as 401.
    """

    def __init__(self, message: str, error: Error, audience: str, status: int) -> None:
        super().__init__(message, error)
        self.audience = audience
        self.status = status


class Authorizer:
    """The `authorize` of a connection to Service Bus or Event Hubs.

    `host` is that of the audiences; `entity` is the only entity that there are tokens for, None for
    all. `clock` returns seconds since 1970, `sleep` waits seconds: tests replace them.
    """

    def __init__(
        self,
        provider: TokenProvider,
        host: str,
        entity: str | None = None,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._provider = provider
        self._host = host
        self._entity = entity
        self._clock = clock
        self._sleep = sleep
        # The audiences that have a token on the transport: when it expires, and when another one
        # is put. None: never.
        self._valid: dict[str, tuple[float | None, float | None]] = {}
        self._transport: ref[EngineTransport] | None = None
        # Tokens that are being put, by audience: done with the error if it is refused.
        self._putting: dict[str, asyncio.Future[ManagementError | None]] = {}
        self._renewing: asyncio.Task[None] | None = None
        # Woken when there is another token.
        self._changed = asyncio.Event()

    async def __call__(self, session: Session, address: str) -> None:
        """Put a token for an address, unless it has a valid one. Raises `TokenRefused`."""
        if address == ADDRESS:
            return
        audience = audience_of(self._host, address, self._entity)
        while not self._is_valid(session.connection, audience):
            other = self._putting.get(audience)
            recovery = session.connection.recovery
            if other is None or (recovery is not None and recovery.active):
                # A call that waits until the connection is restored must not be waited for here.
                refused = await self._put_alone(session, audience)
                if refused is None:
                    return
            else:
                refused = await asyncio.shield(other)
            if refused is not None:
                raise _refusal(address, audience, refused)

    def _is_valid(self, connection: Connection, audience: str) -> bool:
        """Return whether there is a token for an audience on the current transport."""
        transport = connection.transport
        if self._transport is None or self._transport() is not transport:
            # Tokens belong to a transport.
            self._transport = ref(transport)
            self._valid.clear()
        found = self._valid.get(audience)
        return found is not None and (found[0] is None or found[0] > self._clock())

    async def _put_alone(self, session: Session, audience: str) -> ManagementError | None:
        """Put a token, for which other calls wait meanwhile; return the error if it is refused."""
        done = asyncio.get_running_loop().create_future()
        self._putting[audience] = done
        refused = None
        try:
            await self._put(session, audience)
            self._start(session.connection)
        except ManagementError as error:
            refused = error
        finally:
            if self._putting.get(audience) is done:
                del self._putting[audience]
            done.set_result(refused)
        return refused

    async def _put(self, session: Session, audience: str) -> None:
        """Put a token. Raises `ManagementError` if it is refused."""
        transport = session.connection.transport
        now = self._clock()
        issued = await self._provider(audience, now)
        seconds = session.connection.within("default")
        links = await RequestLinks(session, ADDRESS, "link").open()
        try:
            request = encode_request("put-token", issued.kind, audience, issued.text, None)
            read_response(await links.request(request, timeout=seconds))
        finally:
            await links.close()
        LOGGER.debug("%s: put a token for %s", session.connection.url, audience)
        if transport is session.connection.transport:
            self._valid[audience] = issued.expires, _due(issued, now)
            self._changed.set()

    # ── Renewal ────────────────────────────────────────────────────────────────────────────────

    def _start(self, connection: Connection) -> None:
        """Start the task that renews tokens, which ends with the connection."""
        if self._renewing is None or self._renewing.done():
            # The task must not keep a connection that its user has dropped.
            self._renewing = asyncio.get_running_loop().create_task(self._run(ref(connection)))
            task = self._renewing
            connection._ended.add_done_callback(lambda _: task.cancel())

    async def _run(self, connection: ref[Connection]) -> None:
        while True:
            self._changed.clear()
            due = min((at for _, at in self._valid.values() if at is not None), default=None)
            if due is None:
                await self._changed.wait()
                continue
            await self._until(due)
            current = connection()
            if current is None:
                return
            try:
                await self._renew(current)
            except ConnectionClosed:
                if current.closed:
                    return
            del current

    async def _until(self, due: float) -> None:
        """Wait until a time, or until there is another token."""
        pause = asyncio.ensure_future(self._sleep(max(due - self._clock(), 0.0)))
        change = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((pause, change), return_when=asyncio.FIRST_COMPLETED)
        finally:
            pause.cancel()
            change.cancel()

    async def _renew(self, connection: Connection) -> None:
        """Put tokens for the audiences that are due and still have links."""
        if connection.recovery is not None and connection.recovery.active:
            # When links are attached again, tokens are put for them.
            await connection.connected()
            return
        used = {
            audience_of(self._host, link.address, self._entity)
            for session in connection.sessions
            for link in session.links
            if link.address is not None
        }
        for audience, (expires, due) in list(self._valid.items()):
            now = self._clock()
            if due is None or due > now:
                continue
            if audience not in used:
                del self._valid[audience]
                continue
            try:
                await connection.with_session(partial(self._put, audience=audience))
            except ConnectionClosed:
                raise
            except (AmqpError, TimeoutError) as error:
                LOGGER.warning(
                    "%s: the token for %s could not be renewed, which is tried again: %s",
                    connection.url,
                    audience,
                    error,
                )
                if audience in self._valid:
                    self._valid[audience] = expires, now + _AGAIN


def _due(issued: IssuedToken, now: float) -> float | None:
    """Return when another token is to be put."""
    if not issued.made or issued.expires is None:
        return None
    return now + max((issued.expires - now) * _RENEWED, _LEAST)


def _refusal(address: str, audience: str, error: ManagementError) -> TokenRefused:
    reason = Error(
        condition=error.condition or "amqp:unauthorized-access",
        description=f"{error.description} ({error.status})",
    )
    message = f"{address!r}: the service refused the token for {audience}"
    return TokenRefused(message, reason, audience, error.status)
