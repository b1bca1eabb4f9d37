"""An engine that is a server: `receive_data` never raises, the output keeps the rules, and nothing
comes after the end."""

from __future__ import annotations

from random import Random

from tests.fuzz.pool import AMQP, SASL
from tests.fuzz.targets._wire import mutate_play, pieces
from tests.support.engine_user import User, said

INITIATOR = False
POOL = AMQP + SASL[:3]


def one(data: bytes) -> None:
    """Play the stream to an engine whose user answers everything."""
    play(data, INITIATOR)


def play(data: bytes, initiator: bool) -> None:
    """Play the stream to an engine of this side."""
    if len(data) < 2:
        return
    user = User(initiator)
    for part, now in pieces(data):
        user.receive(part, now)
        due = user.engine.next_deadline()
        if due is not None and due <= now:
            user.engine.handle_timeout(now)
            user.work()
    user.check()


def seeds() -> list[bytes]:
    """An orderly life, with and without a SASL layer, cut in several ways; and one frame each after
    the beginning of it."""
    parts = said(False)
    begun = b"".join(parts[2:7])
    found = [bytes((how, 5)) + b"".join(parts) for how in range(8)]
    found += [b"\0\0" + begun + frame for frame in AMQP]
    return found


def mutate(random: Random, data: bytes) -> bytes:
    """Other frames."""
    return mutate_play(random, data, POOL)
