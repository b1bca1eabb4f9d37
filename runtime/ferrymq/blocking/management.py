"""Requests and management for code that blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ferrymq import aio
from ferrymq.blocking.face import Face, blocking
from ferrymq.management import Query, Replies
from ferrymq.options import Timeout


class Pair(Face[aio.Pair]):
    """Links that carry requests and responses; the blocking face of `ferrymq.aio.Pair`."""

    @property
    def address(self) -> str | None:
        """The node that receives the requests."""
        return self._behind.address

    @property
    def closed(self) -> bool:
        """Whether one of the links is over."""
        return self._behind.closed

    request: Final = blocking(aio.Pair.request)

    def close(self) -> None:
        """Close both links; see `aio.Pair.close`."""
        if self._portal.usable:
            self._portal.run(self._behind.close)


class ManagementClient(Face[aio.ManagementClient]):
    """Requests to a management node; the blocking face of `ferrymq.aio.ManagementClient`."""

    @property
    def address(self) -> str | None:
        """The node that receives the requests."""
        return self._behind.address

    @property
    def replies(self) -> Replies:
        """Way of the responses: ``"pair"``, ``"link"`` or ``"dynamic"``."""
        return self._behind.replies

    @property
    def closed(self) -> bool:
        """Whether a link of the client is over: then make a new client."""
        return self._behind.closed

    request: Final = blocking(aio.ManagementClient.request)
    create: Final = blocking(aio.ManagementClient.create)
    read: Final = blocking(aio.ManagementClient.read)
    update: Final = blocking(aio.ManagementClient.update)
    delete: Final = blocking(aio.ManagementClient.delete)
    purge: Final = blocking(aio.ManagementClient.purge)
    move: Final = blocking(aio.ManagementClient.move)
    peek: Final = blocking(aio.ManagementClient.peek)

    def query(
        self,
        type: str | None = None,
        attributes: list[str] | None = None,
        *,
        sort: str | None = None,
        limit: int | None = None,
        timeout: Timeout = "default",
    ) -> Iterator[dict[str, object]]:
        """Iterate over entities, page by page; see `aio.ManagementClient.query`."""
        query = Query(type, attributes, sort, limit)
        while not query.done:
            yield from self._portal.run(lambda: self._behind.page(query, timeout))

    def close(self) -> None:
        """Close the links; see `aio.ManagementClient.close`."""
        if self._portal.usable:
            self._portal.run(self._behind.close)
