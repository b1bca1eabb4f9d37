"""The personality `rabbitmq`: what clients and tools of RabbitMQ expect of a broker.

`RABBITMQ` is the package of the personality. It is imported when it is first used: the command
`import-definitions`, which each help of ``ferrymq`` imports, does not need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ferrymq_rabbitmq.package import RABBITMQ

__all__ = ["RABBITMQ"]


def __getattr__(name: str) -> object:
    """Import the package of the personality when it is first used."""
    if name != "RABBITMQ":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ferrymq_rabbitmq.package import RABBITMQ

    globals()[name] = RABBITMQ
    return RABBITMQ
