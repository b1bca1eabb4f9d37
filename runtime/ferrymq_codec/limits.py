"""Bounds on what a peer may make us do: depth, element counts, collisions, caches.

Sizes and counts need no constant of their own: they are checked against the bytes that remain.
"""

from __future__ import annotations

from typing import Final

MAX_DEPTH: Final = 32
"""Lists, maps, arrays and described values that may contain one another.

Compiled Python has no recursion limit of its own; without this bound a peer could overflow the
C stack."""

MAX_ELEMENTS: Final = 65536
"""Elements of untyped lists, maps and arrays that one Reader decodes between two resets."""

COLLISION_COST: Final = 1024
"""Elements charged for a map key whose hash equals that of another key of the same map.

A UUID or a decimal can be crafted to any hash value, which would make a dict quadratic; at this
price a Reader's whole budget buys a few dozen collisions."""

MAX_CACHED_SYMBOLS: Final = 4096
"""Distinct symbols kept decoded; the cache is emptied when it is full."""

MAX_CACHED_SYMBOL_LENGTH: Final = 64
"""Symbols longer than this many bytes are not cached."""

MAX_U32: Final = 0xFFFFFFFF
"""Largest size or count that a 32-bit encoding can state (AMQP 1.0 §1.2)."""
