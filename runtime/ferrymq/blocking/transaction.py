"""Transactions for code that blocks."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from ferrymq import aio
from ferrymq.blocking.portal import Portal
from ferrymq.durations import Duration
from ferrymq.fence import Digest, Fence
from ferrymq.sendable import Sendable

if TYPE_CHECKING:
    from ferrymq.blocking.links import Sender


class Transaction:
    """Blocking face of `ferrymq.aio.Transaction`: work that is done as a whole or not at all.

    ``with`` commits the transaction at the end of the block, and rolls it back if an exception
    leaves the block.
    """

    def __init__(self, portal: Portal, transaction: aio.Transaction) -> None:
        self._portal = portal
        self._transaction = transaction

    def __repr__(self) -> str:
        return f"<blocking {repr(self._transaction)[1:]}"

    @property
    def id(self) -> bytes:
        """The transaction's identifier at the peer."""
        return self._transaction.id

    @property
    def active(self) -> bool:
        """Whether work may be added to the transaction."""
        return self._transaction.active

    @property
    def fence(self) -> Fence | None:
        """The fence that the transaction was declared with."""
        return self._transaction.fence

    def send(
        self,
        sender: Sender,
        message: Sendable,
        *,
        settled: bool = False,
        timeout: Duration | None = None,
    ) -> None:
        """Send a message that exists once the transaction is committed; see `Sender.send`."""
        sender.send(message, settled=settled, timeout=timeout, transaction=self)

    def commit(self, *, digest: Digest | None = None, timeout: Duration | None = None) -> None:
        """Commit the work; see `aio.Transaction.commit`."""
        self._portal.run(lambda: self._transaction.commit(digest=digest, timeout=timeout))

    def rollback(self, *, timeout: Duration | None = None) -> None:
        """Roll the work back; see `aio.Transaction.rollback`."""
        self._portal.run(lambda: self._transaction.rollback(timeout=timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A transaction declared before a fork belongs to the parent process.
        if not self._portal.foreign:
            self._portal.run(lambda: self._transaction.__aexit__(kind, error, traceback))


def unwrap(transaction: Transaction | None) -> aio.Transaction | None:
    """Return the asynchronous transaction of a blocking one."""
    return None if transaction is None else transaction._transaction
