"""Patterns of addresses in rules."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

# The placeholder for the user's name. Wildcard characters in the name have no special meaning.
USER: Final = "{user}"
# Prefixes of the broker's own addresses. A wildcard never matches such a prefix.
RESERVED: Final = ("$", "dynamic.")
# Separates the address of a node and the name of its part: ``NODE::PART``.
PART: Final = "::"

_EXACT: Final = 0
_ANY: Final = 1
_ONE: Final = 2


@final
class AddressPattern:
    """A pattern such as ``orders.*``: `*` stands for any characters or none, `?` for one character,
    ``{user}`` for the user's name.

    The broker's own addresses, for example ``$management``, match only a pattern that begins with
    the same prefix: ``*`` means all nodes, but not the broker. `parted` is True for a pattern of
    parts, which is compared with ``NODE::PART``; other patterns are compared with ``NODE``.
    """

    __slots__ = ("text", "personal", "parted", "_chars", "_kinds", "_reserved")

    def __init__(self, text: str, user: str = "") -> None:
        self.text = text
        self.personal = USER in text
        # ``::`` in a user's name does not make it a pattern of parts.
        self.parted = PART in text
        # Only the pattern itself can match the broker's own addresses, not a user's name in it.
        self._reserved = text.startswith(RESERVED)
        self._chars: list[str] = []
        self._kinds: list[int] = []
        pieces = text.split(USER)
        for at, piece in enumerate(pieces):
            if at > 0:
                self._chars.extend(user)
                self._kinds.extend([_EXACT] * len(user))
            for char in piece:
                self._chars.append(char)
                self._kinds.append(_ANY if char == "*" else _ONE if char == "?" else _EXACT)

    def bind(self, user: str | None) -> AddressPattern | None:
        """Return the pattern for one user; None if it needs a name and the user has none."""
        if not self.personal:
            return self
        return AddressPattern(self.text, user) if user else None

    def matches(self, address: str) -> bool:
        """Return whether the address matches. A pattern with ``{user}`` has to be bound first.

        The time is at most proportional to the product of both lengths.
        """
        if not self._reserved and address.startswith(RESERVED):
            return False
        chars = self._chars
        kinds = self._kinds
        size: i64 = len(kinds)
        length: i64 = len(address)
        p: i64 = 0
        n: i64 = 0
        star: i64 = -1
        retry: i64 = 0
        while n < length:
            kind: i64 = kinds[p] if p < size else -1
            if kind == _ANY:
                star = p
                p += 1
                retry = n
            elif kind == _ONE or (kind == _EXACT and chars[p] == address[n]):
                p += 1
                n += 1
            elif star >= 0:
                # Let the last star match one character more.
                p = star + 1
                retry += 1
                n = retry
            else:
                return False
        while p < size and kinds[p] == _ANY:
            p += 1
        return p == size


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
