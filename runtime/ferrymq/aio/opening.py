"""The awaitable results of `connect`, `session`, `sender` and `receiver`.

sender = await connection.sender("orders")              # the caller closes it

async with connection.sender("orders") as sender: ...   # closed at the end
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar, runtime_checkable


class Closable(Protocol):
    """An object that is closed by awaiting `close`."""

    async def close(self) -> None:
        """Close the object; closing twice is harmless."""


@runtime_checkable
class GivesBack(Protocol):
    """An object whose messages are given back when an exception leaves its block."""

    def give_back(self, error: BaseException) -> None:
        """Give back the messages that were taken and have no outcome."""


T = TypeVar("T")
C = TypeVar("C", bound=Closable)


class Unopened(Generic[T]):
    """Awaitable of an object that is opened when this is awaited, and not before.

    `call` is how the user wrote it, such as ``connection.sender('orders')``: it is part of the
    errors and of the warning that this was never awaited.
    """

    __slots__ = ("_open", "_call", "_used")

    def __init__(self, open: Callable[[], Coroutine[Any, Any, T]], call: str) -> None:
        self._used = False
        self._call = call
        self._open = open

    def __repr__(self) -> str:
        return f"<{self._call}, not awaited>"

    def open(self) -> Coroutine[Any, Any, T]:
        """Return a coroutine that opens the object, for code that cannot await."""
        self._used = True
        return self._open()

    def opener(self) -> Callable[[], Coroutine[Any, Any, T]]:
        """Return the function that opens the object, for code that passes it on."""
        self._used = True
        return self._open

    def __await__(self) -> Generator[Any, None, T]:
        return self.open().__await__()

    def __del__(self) -> None:
        if not getattr(self, "_used", True):
            warnings.warn(
                f"{self._call} was never awaited", RuntimeWarning, stacklevel=2, source=self
            )

    # Type checkers find these mistakes by themselves.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            if name.startswith("_"):
                raise AttributeError(name)
            raise AttributeError(
                f"{self._call} is not open, so it has no {name!r}; await it: "
                f"{self._written_name()} = await {self._call}"
            )

        def __enter__(self) -> object:
            self._used = True
            raise TypeError(f"use async with: async with {self._call} as {self._written_name()}:")

        def __exit__(self, *error: object) -> None:
            pass

    def _written_name(self) -> str:
        """Return a name for the opened object: that of the method."""
        method = self._call.partition("(")[0].rpartition(".")[2]
        return "connection" if method == "connect" else method


class Opening(Unopened[C]):
    """Awaitable that opens an object; in ``async with``, it also closes it. It does nothing
    before."""

    __slots__ = ("_opened",)

    def __init__(self, open: Callable[[], Coroutine[Any, Any, C]], call: str) -> None:
        super().__init__(open, call)
        self._opened: C | None = None

    async def __aenter__(self) -> C:
        opened = await self.open()
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
            await end_block(opened, error)


class Opened:
    """An open object, which ``async with`` closes at the end of the block."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self: C,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await end_block(self, error)

    # Type checkers find this mistake by themselves.
    if not TYPE_CHECKING:

        def __enter__(self) -> object:
            raise TypeError(f"use async with, not with, for a {type(self).__name__}")

        def __exit__(self, *error: object) -> None:
            pass


class Iterated:
    """An object for ``async for``."""

    __slots__ = ()

    # Type checkers find this mistake by themselves.
    if not TYPE_CHECKING:

        def __iter__(self) -> object:
            if isinstance(self, Unopened):
                self._used = True
            raise TypeError(f"use async for, not for: {type(self).__name__} waits for messages")


async def end_block(opened: Closable, error: BaseException | None) -> None:
    """Close an object at the end of its block, which `error` has left."""
    block: object = opened
    if error is not None and isinstance(block, GivesBack):
        block.give_back(error)
    await opened.close()
