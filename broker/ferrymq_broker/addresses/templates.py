"""Templates: policies of nodes that are made when a client uses a name that matches a pattern.

A pattern is a name in which ``*`` stands for any number of characters and ``?`` for one. If several
patterns match, the one with the longest text before its first wildcard wins, then the one with more
text in total. A lookup costs as many dictionary lookups as there are different lengths of such
prefixes, however many patterns there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from ferrymq_broker.addresses.address_space import Template
from ferrymq_broker.values.patterns import Pattern
from ferrymq_broker.values.policy import NodePolicy


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
