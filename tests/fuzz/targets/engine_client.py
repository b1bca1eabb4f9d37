"""An engine that is a client, and a server that is not what it should be."""

from __future__ import annotations

from random import Random

from tests.fuzz.pool import AMQP, SASL
from tests.fuzz.targets._wire import mutate_play
from tests.fuzz.targets.engine_server import play
from tests.support.engine_user import said

POOL = AMQP + SASL


def one(data: bytes) -> None:
    """Play the stream to an engine whose user answers everything."""
    play(data, initiator=True)


def seeds() -> list[bytes]:
    """An orderly life, and one frame each after the beginning of it."""
    parts = said(True)
    begun = b"".join(parts[:8])
    found = [bytes((how, 5)) + b"".join(parts) for how in range(8)]
    found += [b"\0\0" + begun + frame for frame in AMQP]
    return found


def mutate(random: Random, data: bytes) -> bytes:
    """Other frames."""
    return mutate_play(random, data, POOL)
