"""Cycles in a graph of names."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from itertools import pairwise


def cycles(edges: dict[str, list[str]]) -> list[list[str]]:
    """Return the cycles among the names, each as a path that ends where it began.

    Cycles that share an edge with an earlier one are not listed.
    """
    left = {name: list(dict.fromkeys(targets)) for name, targets in edges.items()}
    found: list[list[str]] = []
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            path: list[str] = error.args[1][::-1]
            found.append(path)
            for name, target in pairwise(path):
                left[name].remove(target)
        else:
            return found
