"""The interface of a piece of work of a transaction: a message to publish, or a delivery to
retire."""

from __future__ import annotations


class TxnWork:
    """Work that is done when its transaction is committed, and dropped otherwise.

    The order of calls is `renew`, `commit` and `settle` for a transaction that is committed,
    `roll_back` and `settle` for one that is not. All work is done before any is settled: clients
    get the answer to the discharge before the outcomes of the deliveries.
    """

    __slots__ = ()

    def renew(self) -> str:
        """Return why the work cannot be done any more, or empty."""
        return ""

    def is_sending(self) -> bool:
        """Return whether a delivery of the work is not completely sent yet."""
        return False

    def commit(self) -> None:
        """Do the work, which cannot fail any more."""

    def roll_back(self, lost: bool) -> None:
        """Undo the work. `lost` is whether the connection was lost."""

    def settle(self, committed: bool) -> None:
        """Settle the delivery of the work."""
