"""Links that the peer redirects to another container (AMQP 1.0 §2.8.18).

A session belongs to one connection, so a redirected link has another connection, which it shares
with all links to the same place.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from ferrymq.aio.redirects import MOST_REDIRECTS, link_redirected, places_of
from ferrymq.aio.waiting import all_of, fresh
from ferrymq.errors import LinkDetached

if TYPE_CHECKING:
    from ferrymq.aio.connection import Connection
    from ferrymq.aio.session import Session
    from ferrymq.options import ConnectionOptions, Timeout
    from ferrymq.url import Url

LOGGER: Final = logging.getLogger("ferrymq")

L = TypeVar("L")


class LinkRedirects:
    """The connections of redirected links of one connection, by their first place.

    `open` opens a connection to one of several URLs, with the options of the connection.
    """

    def __init__(
        self,
        connection: Connection,
        open: Callable[[Sequence[Url], ConnectionOptions], Awaitable[Connection]],
    ) -> None:
        self._connection = connection
        self._open = open
        self._opened: dict[tuple[str, str, int, str], asyncio.Task[Connection]] = {}

    async def follow(
        self,
        error: LinkDetached,
        address: str,
        attach: Callable[[Session, str], Awaitable[L]],
    ) -> L:
        """Attach a link that the connection's peer has refused with an error, if that is a
        redirect, where it leads.

        Raises `LinkDetached`: the error, if it is no redirect, and for redirects that are not
        followed; and what connecting and attaching raise.
        """
        connection = self._connection
        way = [(connection.url.place, address)]
        shown = [f"{connection.url}"]
        while (there := link_redirected(connection.url, error, address)) is not None:
            urls, address = there
            step = (urls[0].place, address)
            shown.append(str(urls[0]))
            if step in way:
                raise _unfollowed(error, shown, "the brokers redirect to one another")
            way.append(step)
            if len(way) > MOST_REDIRECTS + 1:
                raise _unfollowed(error, shown, f"these are more than {MOST_REDIRECTS} redirects")
            LOGGER.debug("%s redirects the link to %s, %r", connection.url, urls[0], address)
            try:
                connection = await self.connection_to(urls)
            except ValueError as refused:
                raise _unfollowed(
                    error, shown, f"the redirect is not followed: {refused}"
                ) from None
            try:
                return await _attach(connection, attach, address)
            except LinkDetached as again:
                error = again
        raise error

    async def attach_at(
        self,
        urls: Sequence[str],
        address: str,
        attach: Callable[[Session, str], Awaitable[L]],
    ) -> L:
        """Attach a link at the broker with these URLs, or where that one redirects the link. If
        none of the URLs can be used, ask the connection's own peer."""
        places = places_of(self._connection.url, urls)
        connection = await self.connection_to(places) if places else self._connection
        try:
            return await _attach(connection, attach, address)
        except LinkDetached as error:
            return await self.follow(error, address, attach)

    async def connection_to(self, urls: Sequence[Url]) -> Connection:
        """Return the connection to the broker with these URLs; open it if there is none, or if it
        is closed. Raises as `connect` does when opened."""
        connection = self._connection
        if any(url.place == connection.url.place for url in urls):
            return connection
        place = urls[0].place
        task = self._opened.get(place)
        if task is None or _is_over(task):
            connection.check()
            task = asyncio.ensure_future(self._open(urls, connection.options))
            # A caller may have left before it fails.
            task.add_done_callback(_is_over)
            self._opened[place] = task
        return await asyncio.shield(task)

    @property
    def has_any(self) -> bool:
        """Whether there is a connection, or one is being opened."""
        return bool(self._opened)

    def give_back(self, error: BaseException) -> None:
        """Give back the messages that were taken and have no outcome."""
        for task in self._opened.values():
            if task.done() and not _is_over(task):
                task.result().give_back(error)

    async def close(self, timeout: Timeout) -> None:
        """Close the connections, each within the timeout."""
        tasks = list(self._opened.values())
        self._opened.clear()
        for task in tasks:
            task.cancel()
        await all_of(_close(task, timeout) for task in tasks)


async def _attach(
    connection: Connection, attach: Callable[[Session, str], Awaitable[L]], address: str
) -> L:
    return await connection.with_session(lambda session: attach(session, address))


async def _close(task: asyncio.Task[Connection], timeout: Timeout) -> None:
    await asyncio.wait([task])
    if not task.cancelled() and task.exception() is None:
        await task.result().close(timeout=timeout)


def _is_over(task: asyncio.Task[Connection]) -> bool:
    """Return whether there is, and will be, no connection from a task."""
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None or task.result().closed


def _unfollowed(error: LinkDetached, way: list[str], reason: str) -> LinkDetached:
    """Return the error of a redirect with the reason why it is not followed."""
    named = fresh(error)
    named.args = (f"{error} ({' → '.join(way)}: {reason})",)
    return named
