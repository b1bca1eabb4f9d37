"""What the data source raises.

    AmqpSourceError              everything below
     ├─ AmqpOptionError          an option, named, is wrong; so is a column of a frame to be written
     ├─ AmqpDataLossError        records that were to be read are gone
     └─ AmqpWriteError           a batch was not written; nothing of it is there

Spark shows the message of what fails in a task or in the driver's process, with a traceback around
it. So messages say all there is to know: the option, the node, the range, the remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class AmqpSourceError(Exception):
    """Something the data source `amqp` was asked for cannot be done."""


class AmqpOptionError(AmqpSourceError, ValueError):
    """An option or a column is wrong. The message names it, what it says and what it may say."""


class AmqpDataLossError(AmqpSourceError):
    """Records that a query was to read are not there any more.

    The message names stream, partition, the range expected and the range there is, and the remedy.
    """


class AmqpWriteError(AmqpSourceError):
    """A task did not write its rows: none of them is at the broker."""


def plain(method: Callable[P, R]) -> Callable[P, R]:
    """Decorate a method that Spark calls: its `AmqpSourceError` has no traceback of ours.

    Spark shows the traceback above the message, which says all there is to know.
    """

    @wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except AmqpSourceError as error:
            raise error.with_traceback(None) from None

    return run


def plain_rows(method: Callable[P, Iterator[R]]) -> Callable[P, Iterator[R]]:
    """Decorate a method that makes rows, as `plain` does."""

    @wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        try:
            yield from method(*args, **kwargs)
        except AmqpSourceError as error:
            raise error.with_traceback(None) from None

    return run
