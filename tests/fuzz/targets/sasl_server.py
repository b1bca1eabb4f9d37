"""A server that offers every mechanism, and a client that says anything.

Nobody gets in who has not said or proved the password; the connection ends or waits, and the
engine never raises.
"""

from __future__ import annotations

from random import Random

from ferrymq.engine import Connection, ConnectionSettings
from ferrymq.engine.events import (
    Authenticated,
    AuthenticationRequested,
    ScramKeysRequested,
    Terminated,
)
from ferrymq.engine.scram import SCRAM_MECHANISMS, ScramKeys
from tests.fuzz.mutation.plain import mutate_bytes
from tests.fuzz.pool import SASL
from tests.fuzz.targets._wire import mutate_play, pieces
from tests.support.script import SASL_HEADER, parse

_KEYS = {
    name: ScramKeys.derive(name, "secret", salt=b"0123456789abcdef") for name in SCRAM_MECHANISMS
}
_OFFERED = ["ANONYMOUS", "PLAIN", "EXTERNAL", *SCRAM_MECHANISMS, "OAUTHBEARER"]
_TOKEN = "a.b.c"


def one(data: bytes) -> None:
    """Play the stream to a server."""
    if len(data) < 2:
        return
    engine = Connection(
        ConnectionSettings(
            container_id="server",
            initiator=False,
            sasl_mechanisms=_OFFERED,
            sasl_required=True,
        ),
        0.0,
    )
    output = b""
    good = False
    over = False
    for part, now in pieces(data):
        engine.receive_data(part, now)
        while events := engine.take_events():
            for event in events:
                assert not over, event
                if isinstance(event, ScramKeysRequested):
                    known = event.username == "ann"
                    engine.provide_scram_keys(_KEYS[event.mechanism] if known else None)
                elif isinstance(event, AuthenticationRequested):
                    # By SCRAM the password has been proved before.
                    proved = event.mechanism in SCRAM_MECHANISMS
                    assert not proved or event.username == "ann"
                    said = event.password == "secret" or event.token == _TOKEN
                    if said and not _openly(event.username) and not _openly(event.hostname):
                        assert not _openly(repr(event))
                    good = proved or said or event.mechanism == "ANONYMOUS"
                    if good:
                        engine.accept_authentication()
                    else:
                        engine.reject_authentication()
                elif isinstance(event, Authenticated):
                    assert good
                elif isinstance(event, Terminated):
                    over = True
        output += engine.data_to_send()
    assert over is engine.finished
    parse(output)


def _openly(text: str | None) -> bool:
    return text is not None and ("secret" in text or _TOKEN in text)


def seeds() -> list[bytes]:
    """One frame each after the header, and one after the other."""
    found = [b"\0\0" + SASL_HEADER + frame for frame in SASL]
    found += [b"\0\0" + SASL_HEADER + a + b for a in SASL[:9] for b in SASL[9:12]]
    return found


def mutate(random: Random, data: bytes) -> bytes:
    """Other frames, or other words in them."""
    if random.random() < 0.3:
        return data[:2] + mutate_bytes(random, data[2:], WORDS)
    return mutate_play(random, data, SASL)


WORDS = (
    b"\0", b"\1", b",", b"=", b"n,,", b"y,,", b"p=tls-unique,,", b"n=", b"r=", b"i=", b"s=", b"v=",
    b"p=", b"m=", b"c=biws,", b"=2C", b"=3D", b"i=1000000000", b"auth=Bearer ", b"a=ann,", b"ann",
    b"e=", b"\xff", b"AAAA", b"i=-1", b"i=0",
)  # fmt: skip
