"""Patterns of addresses in rules."""

from __future__ import annotations

from typing import Final, final

from ferrymq_broker.values.names import DYNAMIC, PART, USER_PLACEHOLDER
from ferrymq_broker.values.wildcards import literal_codes, pattern_codes, wildcards_match

# Prefixes of the broker's own addresses. A wildcard never matches such a prefix.
RESERVED: Final = ("$", DYNAMIC)


@final
class AddressPattern:
    """A pattern such as ``orders.*``: `*` stands for any characters or none, `?` for one character,
    ``{user}`` for the user's name.

    The broker's own addresses, for example ``$management``, match only a pattern that begins with
    the same prefix: ``*`` means all nodes, but not the broker. `parted` is True for a pattern of
    parts, which is compared with ``NODE::PART``; other patterns are compared with ``NODE``.
    """

    __slots__ = ("text", "personal", "parted", "_codes", "_reserved")

    def __init__(self, text: str, user: str = "") -> None:
        self.text: str = text
        self.personal: bool = USER_PLACEHOLDER in text
        # ``::`` in a user's name does not make it a pattern of parts.
        self.parted: bool = PART in text
        # Only the pattern itself can match the broker's own addresses, not a user's name in it.
        self._reserved = text.startswith(RESERVED)
        self._codes: list[int] = []
        for at, piece in enumerate(text.split(USER_PLACEHOLDER)):
            if at > 0:
                # Wildcard characters in the name have no special meaning.
                self._codes += literal_codes(user)
            self._codes += pattern_codes(piece)

    def bind(self, user: str | None) -> AddressPattern | None:
        """Return the pattern for one user; None if it needs a name and the user has none."""
        if not self.personal:
            return self
        return AddressPattern(self.text, user) if user else None

    def matches(self, address: str) -> bool:
        """Return whether the address matches. A pattern with ``{user}`` has to be bound first."""
        if not self._reserved and address.startswith(RESERVED):
            return False
        return wildcards_match(self._codes, address)


def node_of(address: str) -> str:
    """Return the address without its part, that is, the text before the first ``::``.

    Of more than two colons in a row the first ones belong to the node, as where nodes are looked
    up: ``a:::b`` is a part of ``a:``, to which a rule for ``a`` does not apply.
    """
    cut = address.find(PART, 1)
    if cut < 0:
        return address
    while address.startswith(PART, cut + 1):
        cut += 1
    return address[:cut]
