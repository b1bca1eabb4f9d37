"""A client with a password, and a server that says anything.

The password is told to a server that offers PLAIN only if the client would use that; a server that
has not proved to know the password is never believed with SCRAM.
"""

from __future__ import annotations

import base64
from random import Random

from ferrymq.engine import Connection, ConnectionSettings, Plain
from ferrymq.engine.events import Authenticated, Terminated
from ferrymq.engine.oauth import OAuthBearer
from ferrymq.engine.sasl import Anonymous, SaslMechanism
from ferrymq.engine.scram import password_mechanisms
from ferrymq_types.security import SaslChallenge, SaslMechanisms
from tests.fuzz.mutation.plain import mutate_bytes
from tests.fuzz.pool import SASL
from tests.fuzz.targets._wire import mutate_play, pieces
from tests.fuzz.targets.sasl_server import WORDS
from tests.support.script import SASL_HEADER, encoded, parse

_PASSWORD = "correct horse"
_TOKEN = "hbGciOiJ.zdWIiOiJ.c2lnbmF0"
OFFER = encoded(SaslMechanisms(sasl_server_mechanisms=["OAUTHBEARER"]))
REFUSAL = encoded(SaslChallenge(challenge=b'{"status":"invalid_token"}'))


def one(data: bytes) -> None:
    """Play the stream to a client; three bits of the first byte say which mechanisms it has."""
    if len(data) < 2:
        return
    which = data[0] >> 3 & 7
    mechanisms: list[SaslMechanism] = [Anonymous()]
    if which == 4:
        mechanisms = [OAuthBearer(_TOKEN, "ann")]
    elif which:
        mechanisms = password_mechanisms("ann", _PASSWORD, plain=which != 2)
        if which == 3:
            mechanisms = [Plain("ann", _PASSWORD)]
    engine = Connection(
        ConnectionSettings(container_id="client", initiator=True, sasl=mechanisms), 0.0
    )
    engine.open()
    output = b""
    over = False
    for part, now in pieces(data):
        engine.receive_data(part, now)
        for event in engine.take_events():
            assert not over, event
            if isinstance(event, Authenticated):
                # Nobody can make up a proof of the server.
                assert which != 2
            over = isinstance(event, Terminated)
            assert _PASSWORD not in repr(event) and _TOKEN not in repr(event)
        output += engine.data_to_send()
        if which in (0, 2):
            assert _PASSWORD.encode() not in output
            assert base64.b64encode(_PASSWORD.encode()) not in output
    assert over is engine.finished
    parse(output)


def seeds() -> list[bytes]:
    """Offers, and one or two frames after them."""
    offers = SASL[12:14]
    found = []
    for how in (0, 8, 16, 24, 32):
        for offer in offers:
            found += [bytes((how, 0)) + SASL_HEADER + offer + frame for frame in SASL[14:21]]
            found.append(bytes((how, 0)) + SASL_HEADER + OFFER + REFUSAL)
            found.append(bytes((how, 0)) + SASL_HEADER + offer + SASL[14] + SASL[15] + SASL[18])
    return found


def mutate(random: Random, data: bytes) -> bytes:
    """Other frames, or other words in them."""
    if random.random() < 0.3:
        return data[:2] + mutate_bytes(random, data[2:], WORDS)
    return mutate_play(random, data, (*SASL, OFFER, REFUSAL))
