"""The awaitable results of `connect`, `session`, `sender` and `receiver`.

sender = await connection.sender("orders")              # the caller closes it

async with connection.sender("orders") as sender: ...   # closed at the end
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable


class Closable(Protocol):
    """An object that is closed by awaiting `close`."""

    async def close(self) -> None:
        """Close the object; closing twice is harmless."""


@runtime_checkable
class GivesBack(Protocol):
    """An object whose messages are given back when an exception leaves its block."""

    def give_back(self, error: BaseException) -> None:
        """Give back the messages that were taken and have no outcome."""


T = TypeVar("T", bound=Closable)


class Opening(Generic[T]):
    """Awaitable that opens an object; in ``async with``, it also closes it. It does nothing
    before."""

    __slots__ = ("_open", "_opened")

    def __init__(self, open: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._open = open
        self._opened: T | None = None

    def open(self) -> Coroutine[Any, Any, T]:
        """Return a coroutine that opens the object, for code that cannot await."""
        return self._open()

    def __await__(self) -> Generator[Any, None, T]:
        return self._open().__await__()

    async def __aenter__(self) -> T:
        opened = await self._open()
        self._opened = opened
        return opened

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        opened = self._opened
        self._opened = None
        if opened is not None:
            if error is not None and isinstance(opened, GivesBack):
                opened.give_back(error)
            await opened.close()
