"""Templates: policies of nodes that are made when a client uses a name that matches a pattern.

A pattern is a name in which ``*`` stands for any number of characters and ``?`` for one. If several
patterns match, the one with the longest text before its first wildcard wins, then the one with more
text in total. A lookup costs as many dictionary lookups as there are different lengths of such
prefixes, however many patterns there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from ferrymq_broker.addresses.address_space import Template
from ferrymq_broker.nodes.policy import NodePolicy

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


@final
class PatternTemplate(Template):
    """All patterns of a virtual host, and the policies of the nodes they make."""

    __slots__ = ("_by_prefix", "_lengths")

    def __init__(self) -> None:
        self._by_prefix: dict[str, list[tuple[Pattern, NodePolicy]]] = {}
        # The lengths of all prefixes, longest first.
        self._lengths: list[int] = []

    def add(self, pattern: str, policy: NodePolicy) -> None:
        """Add a pattern and the policy of its nodes."""
        apart = Pattern(pattern)
        known = self._by_prefix.get(apart.prefix)
        if known is None:
            known = []
            self._by_prefix[apart.prefix] = known
            if len(apart.prefix) not in self._lengths:
                self._lengths.append(len(apart.prefix))
                self._lengths.sort(reverse=True)
        at = 0
        while at < len(known) and known[at][0].weight >= apart.weight:
            at += 1
        known.insert(at, (apart, policy))

    def policy_for(self, address: str, capabilities: Sequence[str]) -> NodePolicy | None:
        """Return the policy of the most specific pattern that matches; `capabilities` do not
        matter."""
        found = self.match(address)
        return None if found is None else found[1]

    def match(self, address: str) -> tuple[Pattern, NodePolicy] | None:
        """Return the most specific pattern that matches, and its policy."""
        for length in self._lengths:
            if length <= len(address):
                for pair in self._by_prefix.get(address[:length], []):
                    if pair[0].matches(address):
                        return pair
        return None
