"""Who may connect (AMQP 1.0 §5.3)."""

from __future__ import annotations

import hmac
from typing import final


@final
class Authenticator:
    """Checks what a client says about itself.

    `users` maps names to passwords. With `anyone`, every name and password is good: the friendly
    local broker without configured users, whose listeners are on the loopback interface only.
    `anonymous` lets in clients that say nothing.
    """

    __slots__ = ("users", "anyone", "anonymous")

    def __init__(self, users: dict[str, str], anyone: bool, anonymous: bool) -> None:
        self.users = users
        self.anyone = anyone
        self.anonymous = anonymous

    def mechanisms(self) -> list[str]:
        """The SASL mechanisms to offer, those that lead somewhere."""
        offered = []
        if self.anonymous:
            offered.append("ANONYMOUS")
        if self.anyone or self.users:
            offered.append("PLAIN")
        return offered

    def check(self, mechanism: str, username: str | None, password: str | None) -> bool:
        """Whether the client is let in. Unknown users and wrong passwords take the same time."""
        if mechanism == "ANONYMOUS":
            return self.anonymous
        if mechanism != "PLAIN" or username is None or password is None:
            return False
        if self.anyone:
            return True
        expected = self.users.get(username)
        given = password.encode()
        if expected is None:
            hmac.compare_digest(given, given)
            return False
        return hmac.compare_digest(given, expected.encode())
