"""The identity of a client."""

from __future__ import annotations

from typing import Final, final

_NOBODY: Final[frozenset[str]] = frozenset()


@final
class UserIdentity:
    """An identity that a client has proved.

    `user` is None for a client without a name. `claims` are the claims of a token, each with its
    values as text. `key` is the shared access key that signed the token, if any. `mechanism` is the
    method of the proof: a SASL mechanism, or ``token``. `expires` is when the proof expires, in
    seconds since the Unix epoch; 0 for never. `proven` is False for a name that was not checked.
    """

    __slots__ = ("user", "groups", "claims", "key", "mechanism", "expires", "proven")

    def __init__(
        self,
        user: str | None,
        groups: frozenset[str] = _NOBODY,
        claims: dict[str, frozenset[str]] | None = None,
        key: str = "",
        mechanism: str = "",
        expires: float = 0.0,
        proven: bool = True,
    ) -> None:
        self.user: str | None = user
        self.groups: frozenset[str] = groups
        self.claims: dict[str, frozenset[str]] = {} if claims is None else claims
        self.key: str = key
        self.mechanism: str = mechanism
        self.expires: float = expires
        self.proven: bool = proven
