"""Base class of the blocking faces, and the function that makes their methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from ferrymq.aio.opening import GivesBack
from ferrymq.blocking.portal import Portal

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")


class Face(ABC, Generic[A]):
    """The blocking face of `behind`, an object of the asyncio client that can be closed."""

    def __init__(self, portal: Portal, behind: A) -> None:
        self._portal = portal
        self._behind = behind

    @abstractmethod
    def close(self) -> None:
        """Close the asyncio object of the face."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        behind = self._behind
        if error is not None and isinstance(behind, GivesBack) and self._portal.usable:
            # The exception matters more than an error met here.
            with suppress(Exception):
                self._portal.call(lambda: behind.give_back(error))
        self.close()


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Return a blocking method that calls the asynchronous one and waits for its result.

    It has the same parameters, result and docstring.
    """

    @wraps(method)
    def call(face: Face[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return face._portal.run(lambda: method(face._behind, *args, **kwargs))

    return call
