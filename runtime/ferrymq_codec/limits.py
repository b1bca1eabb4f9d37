"""Bounds on the work and memory that a peer can cause: depth, memory, collisions, caches.

Sizes and counts need no constant of their own: they are checked against the remaining bytes. The
elements of a frame are bounded by the bytes of the frame, those of a message by memory.
"""

from __future__ import annotations

from typing import Final

MAX_DEPTH: Final = 32
"""Depth of nesting of lists, maps, arrays and described values.

Compiled Python has no recursion limit of its own; without this bound a peer could overflow the C
stack.
"""

MAX_MEMORY: Final = 256 * 1024 * 1024
"""Bytes of memory for the elements of untyped lists, maps and arrays that one Reader decodes
between two resets."""

ELEMENT_MEMORY: Final = 64
"""Bytes of memory that an element is assumed to need: a small object and a reference to it."""

MAX_ELEMENTS: Final = MAX_MEMORY // ELEMENT_MEMORY
"""The budget of a Reader, in elements: 4 194 304."""

SECTION_ELEMENTS: Final = 65_536
"""The budget of a broker for reading one message: other connections wait while it reads."""

FREE_COLLISIONS: Final = 64
"""The number of keys of one map that may have the same hash. `-1` and `-2` have the same hash, and
so do 34 powers of two."""

COLLISION_COST: Final = 65_536
"""The number of elements that each further key with that hash costs.

A UUID or a decimal can be crafted to any hash value, which would make a dict quadratic; at this
price a Reader's whole budget pays for 64 such keys, and the budget of a frame for none.
"""

MAX_CACHED_SYMBOLS: Final = 4096
"""The size of the cache of decoded symbols; the cache is emptied when it is full."""

MAX_CACHED_SYMBOL_LENGTH: Final = 64
"""Symbols longer than this many bytes are not cached."""

MAX_U32: Final = 0xFFFFFFFF
"""Largest size or count that a 32-bit encoding can state (AMQP 1.0 §1.2)."""
