"""Queues of scripts, and a name that nothing has."""

from __future__ import annotations

from typing import Any, Final

from pamqp.commands import Queue

from tests.interop.amqp_0_9_1.transcript import Peer

NOBODY: Final = "missing"


def declared_queue(p: Peer, name: str, channel: int = 1, **arguments: Any) -> str:
    """Declare an exclusive queue; `x_max_length=3` is an argument."""
    table = {key.replace("_", "-"): value for key, value in arguments.items()}
    p.call(Queue.Declare(0, name, exclusive=True, arguments=table), channel)
    return name


def with_dead_letters(p: Peer, name: str, **arguments: Any) -> None:
    """Declare the queue `letter-NAME`, whose dead letters go to `dead-NAME`."""
    dead = f"dead-{name}"
    declared_queue(p, dead)
    to_dead = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": dead}
    declared_queue(p, f"letter-{name}", **arguments, **to_dead)
