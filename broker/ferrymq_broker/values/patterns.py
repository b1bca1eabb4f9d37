"""Patterns of addresses: which names they match, and which of two patterns is more specific.

``*`` stands for any characters or none, and ``?`` for one.
"""

from __future__ import annotations

from typing import final

from ferrymq_broker.values.wildcards import ANY, ONE, pattern_codes, wildcards_match


@final
class Pattern:
    """A parsed pattern. `prefix` is the text before its first wildcard."""

    __slots__ = ("text", "prefix", "weight", "open_ended", "_codes")

    def __init__(self, text: str) -> None:
        self.text: str = text
        cut = 0
        while cut < len(text) and text[cut] != ANY and text[cut] != ONE:
            cut += 1
        self.prefix: str = text[:cut]
        # The number of characters that are not wildcards.
        self.weight: int = len(text) - text.count(ANY) - text.count(ONE)
        self.open_ended: bool = text[cut:] == ANY
        self._codes = pattern_codes(text)

    def matches(self, name: str) -> bool:
        """Return whether the name matches."""
        if not name.startswith(self.prefix):
            return False
        return self.open_ended or wildcards_match(self._codes, name, len(self.prefix))


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
    """Return how specific a pattern is. If two patterns match a name, the greater result wins."""
    apart = Pattern(pattern)
    return len(apart.prefix), apart.weight
