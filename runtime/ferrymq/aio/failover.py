"""Failing over: which of the URLs of a broker is tried when, and what it redirects to."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from ferrymq.aio.redirects import MOST_REDIRECTS, REDIRECT, redirected
from ferrymq.errors import AmqpError, AuthenticationError, ConnectionClosed, TransportError
from ferrymq_types.security import SaslCode

if TYPE_CHECKING:
    from ferrymq.url import Url

LOGGER: Final = logging.getLogger("ferrymq")

CLUSTER: Final = "ferrymq:cluster"
"""Property of the open of a broker: the identity of its data, which the members of a cluster
share."""

# Conditions of a peer that may take the connection later.
_PASSING: Final = (
    "amqp:connection:forced",
    "amqp:internal-error",
    "amqp:resource-limit-exceeded",
    REDIRECT,
)
# What a web server answers whose service is not up.
_NOT_UP: Final = (502, 503, 504)

R = TypeVar("R")
Attempt = Callable[["Url", float | None], Awaitable[R]]
"""A function that connects to a URL within seconds, None for any number."""


class OtherCluster(ConnectionClosed):
    """Two URLs lead to different brokers, so no link of one can be resumed at the other."""


class Failover:
    """The URLs of one broker, and what is known about them: which one worked last, and which
    cluster they belong to.

    `check` raises ValueError for a URL that the options of the connection do not allow.
    """

    def __init__(
        self,
        urls: Sequence[Url],
        timeout: float | None,
        follow_redirects: bool,
        check: Callable[[Url], None],
    ) -> None:
        self._urls = list(urls)
        self._timeout = timeout
        self._follow_redirects = follow_redirects
        self._check = check
        self._last: Url | None = None
        # The first cluster that a broker named, and the URL of this broker.
        self._cluster: tuple[str, Url] | None = None

    def check_cluster(self, url: Url, properties: dict[str, object]) -> None:
        """Compare the cluster that a broker names in its open with the one that was named first.

        Raises `OtherCluster`. A broker that names none is taken for the right one.
        """
        found = properties.get(CLUSTER)
        if not isinstance(found, str):
            return
        if self._cluster is None:
            self._cluster = (found, url)
            return
        known, first = self._cluster
        if found != known:
            raise OtherCluster(
                f"{url} is a broker of the cluster {found!r}, and {first} was one of the cluster "
                f"{known!r}: they do not have the same data, so nothing can be resumed"
            )

    def place_of(self, url: Url, error: ConnectionClosed) -> Url | None:
        """Return where to connect after the peer at `url` has closed the connection with an error;
        None if it does not say so, or redirects are not followed."""
        if not self._follow_redirects:
            return None
        place = redirected(url, error)
        # The user's own URL may have another login.
        return next((one for one in self._urls if place and one.place == place.place), place)

    async def connect(self, attempt: Attempt[R], first: Url | None = None) -> R:
        """Try each URL once: `first`, to which a broker has redirected, then the one that worked
        last, then the others in order.

        They share the time for connecting. Raises the error of the only URL, or one with all
        reasons. A refused login, and a broker of another cluster, end it at once.
        """
        errors: list[Exception] = []
        if first is not None and (reason := self._refusal(first)):
            errors.append(ConnectionClosed(reason))
            LOGGER.debug("%s", reason)
            first = None
        waiting: list[Url] = []
        for url in (first, self._last, *self._urls):
            if url is not None and url not in waiting:
                waiting.append(url)
        loop = asyncio.get_running_loop()
        tried: list[Url] = []
        left = self._timeout
        while waiting:
            begun = loop.time()
            share = None if left is None else left / len(waiting)
            try:
                return await self._connect(waiting[0], share, attempt, tried)
            except (AmqpError, OSError) as error:
                if is_final(error):
                    raise
                LOGGER.debug("%s", error)
                errors.append(error)
            waiting = [url for url in waiting[1:] if not _is_among(url, tried)]
            if left is not None:
                left = max(left - (loop.time() - begun), 0.0)
        raise _joined(errors)

    async def _connect(
        self, url: Url, timeout: float | None, attempt: Attempt[R], tried: list[Url]
    ) -> R:
        """Connect to a URL, and to where it redirects. Adds what it tried to `tried`."""
        loop = asyncio.get_running_loop()
        way = [url]
        while True:
            tried.append(url)
            begun = loop.time()
            try:
                done = await attempt(url, timeout)
            except ConnectionClosed as error:
                place = self.place_of(url, error)
                if place is None:
                    raise
                way.append(place)
                self._check_redirect(way, tried, error)
                LOGGER.debug("%s redirects to %s", url, place)
                url = place
                if timeout is not None:
                    timeout = max(timeout - (loop.time() - begun), 0.0)
            else:
                self._last = url
                return done

    def _check_redirect(self, way: list[Url], tried: list[Url], error: ConnectionClosed) -> None:
        """Raise `ConnectionClosed` if the last redirect of a way is not to be followed."""
        place, shown = way[-1], " → ".join(map(str, way))
        if _is_among(place, way[:-1]):
            reason = "the brokers redirect to one another"
        elif _is_among(place, tried):
            reason = f"no connection to {place} could be made before"
        elif len(way) > MOST_REDIRECTS + 1:
            reason = f"these are more than {MOST_REDIRECTS} redirects"
        else:
            reason = self._refusal(place)
        if reason:
            raise ConnectionClosed(f"{shown}: {reason}") from error

    def _refusal(self, place: Url) -> str:
        """Return why the options of the connection forbid to follow a redirect, empty if they do
        not."""
        try:
            self._check(place)
        except ValueError as refused:
            return f"the redirect is not followed: {refused}"
        return ""


def _is_among(url: Url, urls: Sequence[Url]) -> bool:
    return any(url.place == one.place for one in urls)


def _joined(errors: list[Exception]) -> Exception:
    """Return the error of a round: the only one, or the first that may pass, with all texts."""
    chosen = next((error for error in errors if may_come_up(error)), errors[0])
    if len(errors) > 1:
        chosen.args = (f"none of the URLs works: {'; '.join(map(str, errors))}",)
    return chosen


def is_final(error: Exception) -> bool:
    """Return whether no other attempt to connect can help: the login was refused, or the URLs lead
    to different brokers."""
    if isinstance(error, AuthenticationError):
        # Without a code the transport was lost during the login. With sys-temp, the server asks to
        # try again later (AMQP 1.0 §5.3.3.6).
        return error.code is not None and error.code != SaslCode.SYS_TEMP
    return isinstance(error, OtherCluster)


def may_come_up(error: Exception) -> bool:
    """Return whether a first attempt to connect failed for a reason that may pass, as when a broker
    is started: and not because of a login, a certificate or another setting."""
    if isinstance(error, AuthenticationError):
        # The server asks to try again later (AMQP 1.0 §5.3.3.6), or has gone away.
        return error.lost or error.code == SaslCode.SYS_TEMP
    if isinstance(error, OtherCluster):
        return False
    if isinstance(error, ConnectionClosed):
        return error.condition is None or error.condition in _PASSING
    if isinstance(error, TransportError):
        cause = error.__cause__
        if isinstance(cause, ssl.SSLError):
            return isinstance(cause, ssl.SSLEOFError)
        return isinstance(cause, OSError) or getattr(cause, "status", None) in _NOT_UP
    return isinstance(error, TimeoutError)
