"""Logins that make no sense, or come where none is due: refused, and nobody else notices."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest

from tests.hostile.logins import (
    AUTH,
    OK,
    SYS_PERM,
    Scram,
    begin,
    log_in,
    outcome,
    plain,
    prove,
)
from tests.hostile.site import Site
from tests.raw.client import Client
from tests.raw.frames import (
    AMQP_HEADER,
    SASL_HEADER,
    TLS_HEADER,
    frame,
    open_frame,
    sasl_frame,
    sasl_init,
    sasl_response,
)
from tests.raw.values import NULL, binary, symbol

PASSWORD = "correct horse"
NONCE = base64.b64encode(bytes(18)).decode()


# Users, who may fail as often as they like; the witness gives no name.
CONFIG = f"""
[security]
anonymous = true
failed-logins = 0
users = {{ alice = "{PASSWORD}" }}
"""


RESPONSES = {
    "nothing": b"",
    "no NUL": b"alice",
    "one NUL": b"alice\0" + PASSWORD.encode(),
    "three NULs": b"\0alice\0" + PASSWORD.encode() + b"\0",
    "no name": b"\0\0" + PASSWORD.encode(),
    "only NULs": bytes(4000),
    "no UTF-8": b"\0\xff\xfe\0" + PASSWORD.encode(),
    "a surrogate": b"\0alice\xed\xa0\x80\0" + PASSWORD.encode(),
    "somebody else": plain("alice", PASSWORD, "root"),
    "too long": plain("alice", "x" * 8192),
    "a megabyte": plain("alice", "x" * 1_000_000),
}


@pytest.mark.parametrize("what", RESPONSES)
def test_malformed_plain(site: Site, what: str) -> None:
    assert log_in(site.port, "PLAIN", RESPONSES[what]) == SYS_PERM


FIRSTS = {
    "nothing": b"",
    "no name": b"n,,r=" + NONCE.encode(),
    "an empty name": b"n,,n=,r=" + NONCE.encode(),
    "no nonce": b"n,,n=alice",
    "an empty nonce": b"n,,n=alice,r=",
    "two names": b"n,,n=alice,n=bob,r=" + NONCE.encode(),
    "an extension that must be known": b"n,,m=1,n=alice,r=" + NONCE.encode(),
    "somebody else": b"n,a=root,n=alice,r=" + NONCE.encode(),
    "channel binding": b"p=tls-unique,,n=alice,r=" + NONCE.encode(),
    "a name that is not escaped": b"n,,n=al=ice,r=" + NONCE.encode(),
    "a name that nobody may have": "n,,n=al\u0007ice,r=x".encode(),
    "a name that takes long to prepare": b"n,,n=" + "\u0130".encode() * 3000 + b",r=x",
    "no UTF-8": b"n,,n=\xff,r=x",
    "a megabyte": b"n,,n=alice,r=" + b"x" * 1_000_000,
}


@pytest.mark.parametrize("what", FIRSTS)
def test_malformed_scram(site: Site, what: str) -> None:
    assert log_in(site.port, "SCRAM-SHA-256", FIRSTS[what]) == SYS_PERM


def _without_proof(scram: Scram) -> bytes:
    return scram.proof(PASSWORD).partition(b",p=")[0]


FINALS: dict[str, Callable[[Scram], bytes]] = {
    "nothing": lambda scram: b"",
    "no proof": _without_proof,
    "an empty proof": lambda scram: _without_proof(scram) + b",p=",
    "a proof that is no base64": lambda scram: _without_proof(scram) + b",p=!!!!",
    "a proof that is short": lambda scram: _without_proof(scram) + b",p=AAAA",
    "a proof that is long": lambda scram: _without_proof(scram) + b",p=" + b"A" * 4000,
    "a proof of zeros": lambda scram: _without_proof(scram) + b",p=" + base64.b64encode(bytes(32)),
    "another nonce": lambda scram: scram.proof(PASSWORD).replace(b"r=", b"r=x"),
    "another header": lambda scram: scram.proof(PASSWORD).replace(b"c=biws", b"c=eSws"),
    "a header that is no base64": lambda scram: scram.proof(PASSWORD).replace(b"c=biws", b"c=b"),
    "no UTF-8": lambda scram: b"\xff" + scram.proof(PASSWORD),
    "twice the same": lambda scram: scram.proof(PASSWORD) + b",p=AAAA",
    "the proof of another password": lambda scram: scram.proof("wrong"),
}


@pytest.mark.parametrize("what", FINALS)
def test_malformed_proofs(site: Site, what: str) -> None:
    with Client(site.port) as client:
        scram = Scram(client, "alice")
        scram.start()
        assert scram.finish(FINALS[what](scram)) == AUTH


def test_all_of_them_again_and_again(site: Site) -> None:
    def attack() -> None:
        for response in RESPONSES.values():
            log_in(site.port, "PLAIN", response)
        for first in FIRSTS.values():
            log_in(site.port, "SCRAM-SHA-256", first)
        for final in FINALS.values():
            with Client(site.port) as client:
                scram = Scram(client, "alice")
                scram.start()
                scram.finish(final(scram))

    site.endures(attack)


def test_a_frame_that_is_too_large_to_be_true(site: Site) -> None:
    """It says that four gigabytes follow: nothing is kept for them."""

    def attack() -> None:
        with Client(site.port) as client:
            client.send(SASL_HEADER, frame(bytes(100), kind=1, size=0xFFFFFFFF))
            client.take(8)
            client.expect("sasl-mechanisms")
            assert outcome(client) == SYS_PERM

    site.endures(attack)


@pytest.mark.parametrize(
    "mechanism", ["EXTERNAL", "OAUTHBEARER", "GSSAPI", "plain", "", "X" * 4000]
)
def test_mechanisms_that_are_not_offered(site: Site, mechanism: str) -> None:
    assert log_in(site.port, mechanism, plain("alice", PASSWORD)) == AUTH


INIT = sasl_init("PLAIN", plain("alice", PASSWORD))
OUT_OF_PLACE = {
    "a response first": sasl_response(plain("alice", PASSWORD)),
    "what servers say": sasl_frame(0x44, b"\x50\x00"),
    "what servers offer": sasl_frame(0x40, symbol("PLAIN")),
    "an AMQP frame": open_frame(),
    "an init without mechanism": sasl_frame(0x41, NULL, binary(b"")),
    "an init and rubbish behind it": frame(INIT[8:] + b"\x40", kind=1),
}


@pytest.mark.parametrize("what", OUT_OF_PLACE)
def test_frames_out_of_place(site: Site, what: str) -> None:
    with Client(site.port) as client:
        client.send(SASL_HEADER, OUT_OF_PLACE[what], AMQP_HEADER, open_frame())
        client.take(8)
        client.expect("sasl-mechanisms")
        assert outcome(client) == SYS_PERM


def test_two_inits(site: Site) -> None:
    """The second one does not change who the first one was about."""
    with Client(site.port) as client:
        scram = Scram(client, "alice")
        scram.start()
        client.send(INIT)
        assert outcome(client) == SYS_PERM
    with Client(site.port) as client:
        begin(client, "PLAIN", plain("alice", PASSWORD)).send(INIT, AMQP_HEADER, open_frame())
        assert client.expect("sasl-outcome").field(0) == OK
        # It stands where the header of AMQP should.
        assert client.take(8) == AMQP_HEADER
        assert client.take(1) == b""


def test_a_proof_is_good_once(site: Site) -> None:
    """In its own exchange, and in no other."""
    with Client(site.port) as client:
        scram = Scram(client, "alice")
        scram.start()
        proof = scram.proof(PASSWORD)
        assert scram.finish(proof) == OK
    with Client(site.port) as client:
        replayed = Scram(client, "alice")
        replayed.start()
        assert replayed.finish(proof) == AUTH


def test_open_before_the_outcome_is_not_believed(site: Site) -> None:
    """Pipelined behind a bad login, and behind a good one."""
    for password, code in (("wrong", AUTH), (PASSWORD, OK)):
        with Client(site.port) as client:
            begin(client, "PLAIN", plain("alice", password)).send(AMQP_HEADER, open_frame())
            assert client.expect("sasl-outcome").field(0) == code
            if code == OK:
                assert client.take(8) == AMQP_HEADER
                client.expect("open")
            else:
                assert client.take(1) == b""


@pytest.mark.parametrize("header", [SASL_HEADER, TLS_HEADER])
def test_no_second_layer_behind_a_login(site: Site, header: bytes) -> None:
    with Client(site.port) as client:
        client.authenticate("PLAIN", plain("alice", PASSWORD)).send(header, INIT)
        assert client.take(8) == AMQP_HEADER
        assert client.take(1) == b""


@pytest.mark.parametrize(
    "name", ["Alice", "alice ", "ａlice", "alice\u200b", "ali\u0441e", "*", "?"]
)
def test_names_that_look_like_another(site: Site, name: str) -> None:
    """By PLAIN they are nobody's. SCRAM prepares names first, and then it is the same name."""
    assert log_in(site.port, "PLAIN", plain(name, PASSWORD)) == AUTH
    same = name in ("ａlice", "alice\u200b")
    assert prove(site.port, name, PASSWORD) == (OK if same else AUTH)


def test_the_end_at_any_moment(site: Site) -> None:
    """Whoever goes away while somebody decides on him leaves nothing."""
    said = SASL_HEADER + INIT + AMQP_HEADER + open_frame()

    def attack() -> None:
        for length in range(1, len(said), 7):
            with Client(site.port) as client:
                client.send(said[:length]).half_close()
                while client.take(1):
                    pass

    site.endures(attack)
    assert log_in(site.port, "PLAIN", plain("alice", PASSWORD)) == OK
