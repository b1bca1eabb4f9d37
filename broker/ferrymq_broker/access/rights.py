"""What somebody may do with a node, as bits that add up."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

SEND: Final = 1
RECEIVE: Final = 2
BROWSE: Final = 4
CREATE: Final = 8
DELETE: Final = 16
MANAGE: Final = 32
# To receive and to browse what others could not process.
DEAD_LETTER: Final = 64
ALL: Final = 127
# How many there are.
WIDTH: Final = 7

# By the names that a configuration has for them.
RIGHTS: Final[dict[str, int]] = {
    "send": SEND,
    "receive": RECEIVE,
    "browse": BROWSE,
    "create": CREATE,
    "delete": DELETE,
    "manage": MANAGE,
    "dead-letter": DEAD_LETTER,
}


def name_of(rights: i64) -> str:
    """What the configuration calls a right, or several."""
    return " or ".join([name for name, bit in RIGHTS.items() if (rights & bit) != 0])
