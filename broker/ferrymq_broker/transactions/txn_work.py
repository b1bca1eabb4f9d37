"""A piece of work of a transaction: a message to be published, a delivery to be retired."""

from __future__ import annotations


class TxnWork:
    """Work that is done when its transaction is committed, and forgotten otherwise.

    The order of calls is: `renew`, `commit` and `settle` of a transaction that is committed,
    `roll_back` and `settle` of one that is not. All work is done before any is settled: clients
    hear of the discharge first, then of its deliveries.
    """

    __slots__ = ()

    def renew(self) -> str:
        """Return whether it can still be done; why not, or empty."""
        return ""

    def is_sending(self) -> bool:
        """Return whether a delivery of it has yet to be sent to its end."""
        return False

    def commit(self) -> None:
        """Do it. Nothing can go wrong any more."""

    def roll_back(self, lost: bool) -> None:
        """Undo the work. `lost` is whether the connection is."""

    def settle(self, committed: bool) -> None:
        """Tell the client of the end of its delivery."""
