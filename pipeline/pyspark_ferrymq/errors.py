"""Exceptions of the data source.

    AmqpSourceError              all of the following
     ├─ AmqpOptionError          an option or a column of the frame to be written is wrong
     ├─ AmqpDataLossError        records that were to be read are gone
     └─ AmqpWriteError           a batch was not written; none of its rows is stored

Spark shows the message of an error in a task or in the driver's process within a traceback. So the
messages are complete: the option, the node, the range, the remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class AmqpSourceError(Exception):
    """The data source `amqp` cannot do what was requested."""


class AmqpOptionError(AmqpSourceError, ValueError):
    """An option or a column is wrong. The message names it, its value and the allowed values."""


class AmqpDataLossError(AmqpSourceError):
    """Records that a query should read are gone.

    The message names stream, partition, the expected and the available range, and the remedy.
    """


class AmqpWriteError(AmqpSourceError):
    """A task did not write its rows: the broker has none of them."""


def plain(method: Callable[P, R]) -> Callable[P, R]:
    """Decorate a method that Spark calls: remove our traceback from its `AmqpSourceError`.

    Spark shows the traceback above the message, and the message is complete without it.
    """

    @wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except AmqpSourceError as error:
            raise error.with_traceback(None) from None

    return run


def plain_rows(method: Callable[P, Iterator[R]]) -> Callable[P, Iterator[R]]:
    """Decorate a method that yields rows, as `plain` does."""

    @wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        try:
            yield from method(*args, **kwargs)
        except AmqpSourceError as error:
            raise error.with_traceback(None) from None

    return run
