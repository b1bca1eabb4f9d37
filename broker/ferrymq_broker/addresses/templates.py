"""Nodes that come up by themselves, by the shape of their names.

A pattern is a name in which ``*`` stands for any characters, none among them, and ``?`` for one. Of
several that match, the one with the longest text before its first wildcard decides; then the one
with more text in all. Looking a name up costs as many dictionary lookups as there are different
lengths of such beginnings, however many patterns there are.
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
    """A pattern, taken apart: `prefix` is what comes before its first wildcard."""

    __slots__ = ("text", "prefix", "weight", "open_ended")

    def __init__(self, text: str) -> None:
        self.text = text
        cut = 0
        while cut < len(text) and text[cut] != ANY and text[cut] != ONE:
            cut += 1
        self.prefix = text[:cut]
        # Characters that must be just so.
        self.weight = len(text) - text.count(ANY) - text.count(ONE)
        self.open_ended = text[cut:] == ANY

    def matches(self, name: str) -> bool:
        """Whether the name has this shape."""
        if not name.startswith(self.prefix):
            return False
        return self.open_ended or _matches(self.text, len(self.prefix), name)


def _matches(pattern: str, start: int, name: str) -> bool:
    """Whether pattern and name agree from `start` on; linear but for the last ``*`` so far."""
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
            # The last star takes one character more.
            p = star + 1
            retry += 1
            n = retry
        else:
            return False
    while p < len(pattern) and pattern[p] == ANY:
        p += 1
    return p == len(pattern)


def overlap(first: str, second: str) -> bool:
    """Whether there is a name that both patterns match."""
    # The ends of `second` that are left to be matched after each beginning of `first`.
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
    """A star may stand for nothing at all."""
    further = set(reached)
    for at in reached:
        while at < len(pattern) and pattern[at] == ANY:
            at += 1
            further.add(at)
    return further


def specificity(pattern: str) -> tuple[int, int]:
    """How exact a pattern is; of two that match a name the greater one decides."""
    apart = Pattern(pattern)
    return len(apart.prefix), apart.weight


@final
class PatternTemplate(Template):
    """All patterns of a virtual host, and the policies of the nodes they make."""

    __slots__ = ("_by_prefix", "_lengths")

    def __init__(self) -> None:
        self._by_prefix: dict[str, list[tuple[Pattern, NodePolicy]]] = {}
        # The lengths of the prefixes there are, longest first.
        self._lengths: list[int] = []

    def add(self, pattern: str, policy: NodePolicy) -> None:
        """Names of this shape are to be nodes with this policy."""
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
        """The policy of the most specific pattern that matches; a pattern says what kind it is."""
        found = self.match(address)
        return None if found is None else found[1]

    def match(self, address: str) -> tuple[Pattern, NodePolicy] | None:
        """The most specific pattern that matches, and its policy."""
        for length in self._lengths:
            if length <= len(address):
                for pair in self._by_prefix.get(address[:length], []):
                    if pair[0].matches(address):
                        return pair
        return None
