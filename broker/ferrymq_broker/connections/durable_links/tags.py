"""Deliveries that the broker has received and given an outcome, for the sender to be told again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ferrymq.engine.delivery import IncomingDelivery
    from ferrymq_broker.transactions.txn_publish import TxnPublish
    from ferrymq_types.unions import Outcome


class Tags:
    """The memory that a link on which the broker receives has of its deliveries."""

    __slots__ = ()

    def is_resent(self, tag: bytes) -> bool:
        """Return whether a delivery that is new was accepted on an earlier attachment; told
        once."""
        return False

    def add(self, delivery: IncomingDelivery, outcome: Outcome, kept: bool) -> None:
        """Remember the outcome of a delivery that its sender has not settled.

        The outcome is true after a crash if it is `kept`.
        """

    def posting(self, tag: bytes) -> TxnPublish | None:
        """Return the message of a transaction that is not discharged yet, posted under this tag."""
        return None

    def add_posting(self, tag: bytes, posting: TxnPublish) -> None:
        """Remember a message that is posted in a transaction."""

    def end_posting(self, tag: bytes) -> None:
        """Forget a message that was posted: its transaction is over."""

    def forget(self, tag: bytes) -> None:
        """Forget a delivery that its sender has settled: the sender knows the outcome."""

    def is_full(self) -> bool:
        """Return whether no more can be remembered until the sender settles some."""
        return False

    def leave(self, lost: bool, closed: bool) -> None:
        """Take note that the link is `closed` for good, or only detached, or `lost`."""
