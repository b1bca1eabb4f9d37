"""Management over AMQP: messages that create, read, update and delete the broker's entities."""

from __future__ import annotations

from typing import Final

# The address of the management node in every virtual host.
ADDRESS: Final = "$management"
