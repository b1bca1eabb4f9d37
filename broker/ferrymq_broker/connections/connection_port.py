"""The interface of a connection for its parts that call it back later: logins, tokens, slices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

if TYPE_CHECKING:
    from ferrymq_broker.access.identity import UserIdentity
    from ferrymq_broker.connections.authentication import Login
    from ferrymq_types.transport import Error


class ConnectionPort:
    """The interface of a connection that is called back in a pass of its own."""

    __slots__ = ()

    def is_finished(self) -> bool:
        """Return whether the connection is over."""
        return True

    def settle_login(self, login: Login, identity: UserIdentity | None, reason: str) -> None:
        """Tell the client the result of its login, in the pass in which it logged in."""

    def settle_login_later(self, login: Login, identity: UserIdentity | None, reason: str) -> None:
        """Tell the client the result of its login, in another pass."""

    def close_soon(self, error: Error) -> None:
        """Close the connection from the broker's side, in another pass."""

    def move(self, worker: i64) -> None:
        """Process nothing more: another worker process serves the client's virtual host."""

    def resume_input(self) -> None:
        """Read from the client again, which has waited because of a rate limit."""

    def catch_up(self) -> bool:
        """Process events that were put off, and return whether all of them are done."""
        return True
