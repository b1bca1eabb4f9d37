"""Names that the broker reserves, and how long a name may be."""

from __future__ import annotations

from typing import Final

MAX_ADDRESS_LENGTH: Final = 1024
# The addresses of dynamic nodes begin so. They name their node or, once it is gone, none.
DYNAMIC: Final = "dynamic."
# Separates the address of a node and the name of its part: ``NODE::PART``.
PART: Final = "::"

# The virtual host of clients that name none.
DEFAULT_SPACE: Final = "default"
# A hostname of an open that begins so names a virtual host and no host.
VHOST: Final = "vhost:"
# The placeholder in the addresses of rules for the name of the user.
USER_PLACEHOLDER: Final = "{user}"
