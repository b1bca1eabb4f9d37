"""The interface of remembered outcomes: deliveries that were received and given an outcome, which
the sender may ask for again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ferrymq.engine.delivery import IncomingDelivery
    from ferrymq_broker.transactions.txn_publish import TxnPublish
    from ferrymq_types.unions import Outcome


class Tags:
    """The memory of a link on which the broker receives, about its deliveries."""

    __slots__ = ()

    def is_resent(self, tag: bytes) -> bool:
        """Return whether a new delivery was accepted on an earlier attachment; true only once."""
        return False

    def add(self, delivery: IncomingDelivery, outcome: Outcome, kept: bool) -> None:
        """Remember the outcome of a delivery that its sender has not settled.

        `kept` is whether the outcome stays true after a crash.
        """

    def posting(self, tag: bytes) -> TxnPublish | None:
        """Return the message with this tag that is part of an open transaction."""
        return None

    def add_posting(self, tag: bytes, posting: TxnPublish) -> None:
        """Remember a message that is part of a transaction."""

    def end_posting(self, tag: bytes) -> None:
        """Forget a message of a transaction that is over."""

    def forget(self, tag: bytes) -> None:
        """Forget a delivery that its sender has settled, so that the sender knows the outcome."""

    def is_full(self) -> bool:
        """Return whether nothing more can be remembered until the sender settles something."""
        return False

    def leave(self, lost: bool, closed: bool) -> None:
        """Note that the link is `closed` for good, or only detached, or `lost`."""
