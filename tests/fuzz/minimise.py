"""The fewest and shortest inputs that reach all that the many reach."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import CodeType, FrameType
from typing import Any

_OURS = ("ferrymq", "scramp")

Arc = tuple[CodeType, int, int]


def arcs_of(one: Callable[[bytes], None], data: bytes) -> set[Arc]:
    """The steps from line to line in our packages that an input causes."""
    found: set[Arc] = set()

    def enter(frame: FrameType, event: str, argument: object) -> Any:
        if not str(frame.f_globals.get("__name__", "")).startswith(_OURS):
            return None
        code = frame.f_code
        before = 0

        def step(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal before
            if event == "line":
                found.add((code, before, frame.f_lineno))
                before = frame.f_lineno
            return step

        return step

    sys.settrace(enter)
    try:
        one(data)
    finally:
        sys.settrace(None)
    return found


def minimise(one: Callable[[bytes], None], inputs: Iterable[bytes], longest: int) -> list[bytes]:
    """Those inputs, from the shortest on, that take a step which none before them took."""
    reached: set[Arc] = set()
    chosen = []
    for data in sorted(set(inputs), key=lambda data: (len(data), data)):
        if len(data) > longest:
            continue
        arcs = arcs_of(one, data)
        if not arcs <= reached:
            reached |= arcs
            chosen.append(data)
    return chosen
