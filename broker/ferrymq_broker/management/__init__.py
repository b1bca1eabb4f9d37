"""Management over AMQP: what a broker has, made, read, changed and deleted by messages."""

from __future__ import annotations

from typing import Final

# Where it is, in every virtual host.
ADDRESS: Final = "$management"
