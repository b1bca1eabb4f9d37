"""Names that the broker reserves, and how long a name may be."""

from __future__ import annotations

from typing import Final

MAX_ADDRESS_LENGTH: Final = 1024
# How long the name of a sub-queue may be; its address is ``QUEUE/NAME``.
MAX_SUB_QUEUE: Final = 128
# The prefix of the addresses of dynamic nodes. After the node is deleted, no other node gets its
# address.
DYNAMIC: Final = "dynamic."
# Separates the address of a node and the name of its part: ``NODE::PART``.
PART: Final = "::"

# The virtual host of clients that do not name one.
DEFAULT_SPACE: Final = "default"
# The prefix of a hostname in an open that names a virtual host instead of a host.
VHOST: Final = "vhost:"
# The placeholder in the addresses of rules for the name of the user.
USER_PLACEHOLDER: Final = "{user}"
