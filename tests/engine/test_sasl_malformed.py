"""What clients should never say in SASL: each ends in an outcome, and in nothing else."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramClient

from ferrymq.engine.connection import Connection
from ferrymq.engine.events import (
    AuthenticationRequested,
    ScramKeysRequested,
    Terminated,
)
from ferrymq.engine.scram import MAX_NAME, SCRAM_MECHANISMS, Scram, ScramKeys, prepare_name
from ferrymq.engine.settings import ConnectionSettings
from ferrymq.errors import AuthenticationError
from ferrymq_types.security import SaslChallenge, SaslCode, SaslInit, SaslOutcome, SaslResponse
from tests.support.script import SASL_HEADER, Script, encoded, frame

NAME = "SCRAM-SHA-256"
KEYS = {name: ScramKeys.derive(name, "pencil", 4096) for name in SCRAM_MECHANISMS}
MECHANISMS = ["PLAIN", "ANONYMOUS", "EXTERNAL", *SCRAM_MECHANISMS]


@pytest.fixture
def server(script: Callable[..., Script]) -> Script:
    play = script(sasl_mechanisms=MECHANISMS, sasl_required=True)
    play >> SASL_HEADER
    play.take()
    play.events()
    return play


def refused(play: Script, *codes: SaslCode) -> None:
    """The outcome is one of these, and the transport ends."""
    (item,) = play.take()
    assert isinstance(item.body, SaslOutcome) and item.body.code in codes
    assert isinstance(play.find(Terminated).error, AuthenticationError)
    assert play.engine.finished


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"alice",
        b"\0",
        b"\0\0",
        b"\0\0\0",
        b"\0alice",
        b"\0alice\0secret\0",
        b"bob\0alice\0secret",
        b"\0\xc3\x28\0secret",
        b"\0alice\0\xff",
        b"\0\xed\xa0\x80\0surrogate",
        b"\0" * 8000,
    ],
)
def test_plain(server: Script, response: bytes) -> None:
    server >> SaslInit(mechanism="PLAIN", initial_response=response)
    refused(server, SaslCode.SYS_PERM)


@pytest.mark.parametrize("response", [b"\xff", b"a\0b", b"\0"])
def test_external(server: Script, response: bytes) -> None:
    server >> SaslInit(mechanism="EXTERNAL", initial_response=response)
    refused(server, SaslCode.SYS_PERM)


@pytest.mark.parametrize("mechanism", ["PLAIN", NAME])
@pytest.mark.parametrize("size", [8193, 2**20, 2**31, 2**32 - 1])
def test_a_frame_that_is_too_large_is_refused_by_its_first_bytes(
    server: Script, mechanism: str, size: int
) -> None:
    init = SaslInit(mechanism=mechanism, initial_response=b"\0" * 100)
    server >> frame(encoded(init)[8:], type=1, size=size)
    refused(server, SaslCode.SYS_PERM)


# What is wrong before anybody is asked for keys.
NO_NAME = [
    b"n",
    b"n,,",
    b"n,,r=nonce",
    b"n,,n=,r=nonce",
    b"n,,n=\xff,r=nonce",
    b"n,,n=a\0b,r=nonce",
    # What SASLprep (RFC 4013) does not allow: control characters, left and right mixed, surrogates.
    b"n,,n=a\x07,r=nonce",
    "n,,n=\u0627a\u0628,r=nonce".encode(),
    b"n,,n=\xed\xa0\x80,r=nonce",
    # Mapped to nothing.
    "n,,n=\u00ad,r=nonce".encode(),
    b"n,,n=" + b"a" * (MAX_NAME + 1) + b",r=nonce",
    b"n,,n=" + b"a" * 8000 + b",r=nonce",
]
# What is wrong with the rest of it.
NO_CLIENT_FIRST = [
    # Channel binding is not offered.
    b"p=tls-unique,,n=user,r=nonce",
    b"p=tls-exporter,,n=user,r=nonce",
    b"p=,,n=user,r=nonce",
    # To act as somebody else.
    b"n,a=admin,n=user,r=nonce",
    b"n,admin,n=user,r=nonce",
    b"x,,n=user,r=nonce",
    b",,n=user,r=nonce",
    b"n,,n=user",
    b"n,,n=user,r=",
    b"n,,r=nonce,n=user",
    b"n,,n=user,n=admin,r=nonce",
    b"n,,n=us=er,r=nonce",
    b"n,,m=must,n=user,r=nonce",
    b"n,,n=user,r=nonce,r=nonce",
    b"n,,n=user,r=nonce,=x",
    b"n,,n=user,r=nonce,,",
    b"n,,n=user,r=\xc3\xa9",
]


@pytest.mark.parametrize("response", [b"", *NO_NAME])
def test_client_first_without_a_usable_name(server: Script, response: bytes) -> None:
    server >> SaslInit(mechanism=NAME, initial_response=response)
    refused(server, SaslCode.SYS_PERM)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("response", NO_CLIENT_FIRST)
def test_client_first_that_is_wrong_otherwise(server: Script, response: bytes, known: bool) -> None:
    server >> SaslInit(mechanism=NAME, initial_response=response)
    server.find(ScramKeysRequested)
    server.engine.provide_scram_keys(KEYS[NAME] if known else None)
    refused(server, SaslCode.SYS_PERM)


def test_a_client_that_could_bind_to_a_channel_gets_in_without(server: Script) -> None:
    """``y``: the client knows channel binding and thinks that we do not, which is so."""
    client = ScramClient([NAME], "user", "pencil", channel_binding=("tls-unique", b"bytes"))
    first = client.get_client_first()
    assert first.startswith("y,,")
    server >> SaslInit(mechanism=NAME, initial_response=first.encode())
    server.find(ScramKeysRequested)
    server.engine.provide_scram_keys(KEYS[NAME])
    (item,) = server.take()
    assert isinstance(item.body, SaslChallenge)
    client.set_server_first(item.body.challenge.decode())
    server >> SaslResponse(response=client.get_client_final().encode())
    assert server.find(AuthenticationRequested).username == "user"


def shaken(server: Script) -> tuple[bytes, Scram]:
    """What the client would say last, and who it is."""
    client = Scram(NAME, "user", "pencil")
    server >> SaslInit(mechanism=NAME, initial_response=client.initial_response())
    server.find(ScramKeysRequested)
    server.engine.provide_scram_keys(KEYS[NAME])
    (item,) = server.take()
    assert isinstance(item.body, SaslChallenge)
    return client.respond(item.body.challenge), client


@pytest.mark.parametrize(
    "spoil",
    [
        lambda final: b"",
        lambda final: final.replace(b"c=biws", b"c=eSws"),
        lambda final: final.replace(b"c=biws", b"c=" + base64.b64encode(b"p=tls-unique,,x")),
        lambda final: final.replace(b"c=biws", b"c=%%%%"),
        lambda final: final.replace(b",r=", b",r=x"),
        lambda final: final.split(b",p=")[0],
        lambda final: final.split(b",p=")[0] + b",p=",
        lambda final: final.split(b",p=")[0] + b",p=AAAA",
        lambda final: final.split(b",p=")[0] + b",p=!!!!",
        lambda final: final.split(b",p=")[0] + b",p=" + b"A" * 6000,
        lambda final: final + b",x=more",
        lambda final: final + b"\xff",
        lambda final: final.replace(b",p=", b",i=1000000000,p="),
        lambda final: final.replace(b",p=", b",m=must,p="),
        lambda final: final.replace(b",p=", b",x=" + b"y" * 6000 + b",p="),
        lambda final: final[::-1],
    ],
)
def test_client_final(server: Script, spoil: Callable[[bytes], bytes]) -> None:
    final, _ = shaken(server)
    server >> SaslResponse(response=spoil(final))
    refused(server, SaslCode.AUTH)


def test_one_attempt_is_all_there_is(server: Script) -> None:
    """The proof may be said once: a second one finds nobody who listens."""
    final, _ = shaken(server)
    wrong = SaslResponse(response=final.split(b",p=")[0] + b",p=AAAA")
    server >> encoded(wrong) + encoded(SaslResponse(response=final))
    refused(server, SaslCode.AUTH)
    assert server.events() == []


def test_whoever_is_asked_for_keys_may_refuse_without_a_look(server: Script) -> None:
    server >> SaslInit(mechanism=NAME, initial_response=b"n,,n=user,r=nonce")
    server.find(ScramKeysRequested)
    server.engine.reject_authentication(SaslCode.SYS_TEMP)
    refused(server, SaslCode.SYS_TEMP)


def test_names_are_compared_as_sasl_prepares_them(server: Script) -> None:
    server >> SaslInit(mechanism=NAME, initial_response="n,,n=\uff55ser\u00ad,r=nonce".encode())
    assert server.find(ScramKeysRequested).username == "user"
    server.engine.provide_scram_keys(None)
    server << SaslChallenge


@pytest.mark.parametrize("name", ["", "\u00ad", "a" * 256, "a\n", "\ud800"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(ValueError):
        prepare_name(name)


def test_made_up_keys_look_as_asked_for() -> None:
    for mechanism, real in KEYS.items():
        made_up = ScramKeys.made_up(mechanism, "nobody", 4096)
        assert made_up.iterations == real.iterations
        assert len(made_up.salt) == len(real.salt)
        assert len(made_up.stored_key) == len(real.stored_key)
        assert len(made_up.server_key) == len(real.server_key)
        assert ScramKeys.made_up(mechanism, "nobody").salt == made_up.salt


_words = st.one_of(
    st.none(),
    st.binary(max_size=200),
    st.text(alphabet="npy=,arcimv\0xé\u0627", max_size=60).map(str.encode),
    st.sampled_from([*NO_NAME, *NO_CLIENT_FIRST, b"n,,n=user,r=nonce", b"\0user\0pencil"]),
)


@given(
    st.sampled_from(MECHANISMS),
    _words,
    st.lists(_words.map(lambda word: word or b""), max_size=3),
    st.booleans(),
)
def test_nothing_but_an_outcome_comes_of_it(
    mechanism: str, first: bytes | None, responses: list[bytes], known: bool
) -> None:
    """Whatever is said: the engine raises nothing, and asks whether somebody may come in only if
    PLAIN, ANONYMOUS or EXTERNAL could be read."""
    engine = Connection(
        ConnectionSettings(
            container_id="server", initiator=False, sasl_mechanisms=MECHANISMS, sasl_required=True
        ),
        0.0,
    )
    said = SASL_HEADER + encoded(SaslInit(mechanism=mechanism, initial_response=first))
    for data in (said, *(encoded(SaslResponse(response=response)) for response in responses)):
        engine.receive_data(data, 0.0)
        for event in engine.take_events():
            if isinstance(event, ScramKeysRequested):
                assert len(event.username) <= MAX_NAME
                engine.provide_scram_keys(KEYS[mechanism] if known else None)
            elif isinstance(event, AuthenticationRequested):
                assert mechanism not in SCRAM_MECHANISMS
                engine.reject_authentication()
    engine.data_to_send()
