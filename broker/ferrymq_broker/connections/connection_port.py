"""The port of a connection to its own parts that come back to it later: logins, tokens, slices."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ferrymq_broker.access.identity import UserIdentity
    from ferrymq_broker.connections.authentication import Login
    from ferrymq_types.transport import Error


class ConnectionPort:
    """A connection that is called back in a pass of its own."""

    __slots__ = ()

    def is_finished(self) -> bool:
        """Return whether the connection is over."""
        return True

    def settle_login(self, login: Login, identity: UserIdentity | None, reason: str) -> None:
        """Tell the client what was decided on its login, in the pass in which it logged in."""

    def settle_login_later(self, login: Login, identity: UserIdentity | None, reason: str) -> None:
        """Tell the client what was decided on its login, in a pass of its own."""

    def close_soon(self, error: Error) -> None:
        """Close the connection from our side, in a pass of its own."""

    def catch_up(self) -> bool:
        """Go on with events that were put off, and return whether all of them are done."""
        return True
