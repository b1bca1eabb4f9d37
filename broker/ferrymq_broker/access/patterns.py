"""Which addresses a rule is about."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

# What stands for the name of the user, which is taken literally.
USER: Final = "{user}"
# Addresses that begin so are the broker's own. A wildcard never stands for that beginning.
RESERVED: Final = ("$", "dynamic.")
# Between the address of a node and the part of it that is meant: ``NODE::PART``.
PART: Final = "::"

_EXACT: Final = 0
_ANY: Final = 1
_ONE: Final = 2


@final
class AddressPattern:
    """``orders.*``: `*` stands for any characters or none, `?` for one, ``{user}`` for the user.

    Addresses of the broker's own, ``$management`` for one, are only meant by a pattern that begins
    as they do: ``*`` is all nodes, and not the broker. `parted` is whether it is about parts of
    nodes, and so to be compared with ``NODE::PART``; others are compared with ``NODE``.
    """

    __slots__ = ("text", "personal", "parted", "_chars", "_kinds", "_reserved")

    def __init__(self, text: str, user: str = "") -> None:
        self.text = text
        self.personal = USER in text
        # What the user is called makes no part of it.
        self.parted = PART in text
        # What the user is called opens no door: only the pattern itself can mean the broker.
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
        """The pattern for one user; None if it takes a name and he has none."""
        if not self.personal:
            return self
        return AddressPattern(self.text, user) if user else None

    def matches(self, address: str) -> bool:
        """Whether the address is meant; a personal pattern has to be bound first.

        The time it takes is at most proportional to the lengths of both.
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
                # The last star takes one character more.
                p = star + 1
                retry += 1
                n = retry
            else:
                return False
        while p < size and kinds[p] == _ANY:
            p += 1
        return p == size


def node_of(address: str) -> str:
    """The address without a part: what is before the first ``::``.

    Of more colons than two in a row the first ones are the node's, as they are where nodes are
    looked up: ``a:::b`` is a part of ``a:``, for which a rule for ``a`` says nothing.
    """
    cut = address.find(PART, 1)
    if cut < 0:
        return address
    while address.startswith(PART, cut + 1):
        cut += 1
    return address[:cut]
