"""Rights at a node, as bits."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

SEND: Final = 1
RECEIVE: Final = 2
BROWSE: Final = 4
CREATE: Final = 8
DELETE: Final = 16
MANAGE: Final = 32
# To receive and to browse dead-lettered messages.
DEAD_LETTER: Final = 64
ALL: Final = 127
# The number of rights.
WIDTH: Final = 7

# The rights by their names in the configuration.
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
    """Return the configuration's name of a right, or of several rights."""
    return " or ".join([name for name, bit in RIGHTS.items() if (rights & bit) != 0])
