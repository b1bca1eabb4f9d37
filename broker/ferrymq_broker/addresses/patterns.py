"""Patterns of addresses: which names they match, and which of two is more specific.

``*`` stands for any characters, none among them, and ``?`` for one.
"""

from __future__ import annotations

from typing import Final, final

ANY: Final = "*"
ONE: Final = "?"


@final
class Pattern:
    """A parsed pattern. `prefix` is the text before its first wildcard."""

    __slots__ = ("text", "prefix", "weight", "open_ended")

    def __init__(self, text: str) -> None:
        self.text = text
        cut = 0
        while cut < len(text) and text[cut] != ANY and text[cut] != ONE:
            cut += 1
        self.prefix = text[:cut]
        # The number of characters that are no wildcards.
        self.weight = len(text) - text.count(ANY) - text.count(ONE)
        self.open_ended = text[cut:] == ANY

    def matches(self, name: str) -> bool:
        """Return whether the name matches."""
        if not name.startswith(self.prefix):
            return False
        return self.open_ended or _matches(self.text, len(self.prefix), name)


def _matches(pattern: str, start: int, name: str) -> bool:
    """Return whether pattern and name match from `start` on. Only the last ``*`` is tried again."""
    p = start
    n = start
    star = -1
    retry = 0
    while n < len(name):
        if p < len(pattern) and pattern[p] == ANY:
            star = p
            p += 1
            retry = n
        elif p < len(pattern) and (pattern[p] == ONE or pattern[p] == name[n]):
            p += 1
            n += 1
        elif star >= 0:
            # Let the last star match one character more.
            p = star + 1
            retry += 1
            n = retry
        else:
            return False
    while p < len(pattern) and pattern[p] == ANY:
        p += 1
    return p == len(pattern)


def overlap(first: str, second: str) -> bool:
    """Return whether there is a name that both patterns match."""
    # The positions in `second` that a common name can reach after each prefix of `first`.
    reached = {0}
    reached = _past_stars(second, reached)
    for wanted in first:
        later: set[int] = set()
        for at in reached:
            if wanted == ANY:
                later.update(range(at, len(second) + 1))
            elif at < len(second):
                offered = second[at]
                if offered == ANY:
                    later.add(at)
                elif ONE in (offered, wanted) or offered == wanted:
                    later.add(at + 1)
        reached = _past_stars(second, later)
    return len(second) in reached


def _past_stars(pattern: str, reached: set[int]) -> set[int]:
    """Add the positions after stars, because a star may match no characters."""
    further = set(reached)
    for at in reached:
        while at < len(pattern) and pattern[at] == ANY:
            at += 1
            further.add(at)
    return further


def specificity(pattern: str) -> tuple[int, int]:
    """Return how specific a pattern is. Of two patterns that match a name, the greater one wins."""
    apart = Pattern(pattern)
    return len(apart.prefix), apart.weight
