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
from ferrymq.engine.sasl_exchange import make_server_mechanism
from ferrymq.engine.scram import SCRAM_MECHANISMS, ScramKeys
from tests.fuzz.mutation.plain import mutate_bytes
from tests.fuzz.pool import SASL
from tests.fuzz.targets._wire import mutate_play, pieces
from tests.support.script import SASL_HEADER, parse

_KEYS = {
    name: ScramKeys.derive(name, "secret", salt=b"0123456789abcdef") for name in SCRAM_MECHANISMS
}
_WANTED = ("ANONYMOUS", "PLAIN", "EXTERNAL", *SCRAM_MECHANISMS, "OAUTHBEARER")


def _known(name: str) -> bool:
    try:
        make_server_mechanism(name)
    except ValueError:
        return False
    return True


_OFFERED = [name for name in _WANTED if _known(name)]


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
                    assert "secret" not in repr(event)
                    good = event.password == "secret" or event.mechanism == "ANONYMOUS"
                    if good or event.mechanism in SCRAM_MECHANISMS:
                        good = True
                        assert event.mechanism not in SCRAM_MECHANISMS or event.username == "ann"
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
