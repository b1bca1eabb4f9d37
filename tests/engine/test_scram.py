"""SASL SCRAM on both sides (AMQP 1.0 §5.3; RFC 5802, RFC 7677)."""

from __future__ import annotations

import base64
import hashlib
import hmac
from random import Random

import pytest

from ferrymq.engine import Plain, Scram
from ferrymq.engine.events import (
    Authenticated,
    AuthenticationRequested,
    HeaderReceived,
    ScramKeysRequested,
    Terminated,
)
from ferrymq.engine.scram import (
    MAX_ITERATIONS,
    SCRAM_MECHANISMS,
    ScramKeys,
    password_mechanisms,
)
from ferrymq.errors import AuthenticationError, LocalProtocolError
from ferrymq_types.security import (
    SaslChallenge,
    SaslCode,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from tests.support.script import AMQP_HEADER, SASL_HEADER, like

NAME = "SCRAM-SHA-256"
SALT = b"0123456789abcdef"


def keys(name: str = NAME, password: str = "pencil", iterations: int = 4096) -> ScramKeys:
    return ScramKeys.derive(name, password, iterations, SALT)


@pytest.fixture
def server(script):
    play = script(sasl_mechanisms=list(SCRAM_MECHANISMS), sasl_required=True)
    play >> SASL_HEADER << SASL_HEADER << SaslMechanisms
    play.event(HeaderReceived)
    return play


@pytest.fixture
def client(script):
    play = script(initiator=True, sasl=Scram(NAME, "user", "pencil"), hostname="host")
    play << SASL_HEADER
    play >> SASL_HEADER
    play.events()
    play >> SaslMechanisms(sasl_server_mechanisms=[NAME])
    (item,) = play.take()
    play.first = item.body.initial_response
    return play


def challenge(play) -> bytes:
    """What the server challenges with: the next thing it says."""
    (item,) = play.take()
    assert isinstance(item.body, SaslChallenge)
    return item.body.challenge


def shake(play, mechanism: Scram, stored: ScramKeys | None) -> bytes:
    """The exchange up to and without the client's last word, which is returned."""
    play >> SaslInit(mechanism=mechanism.name, initial_response=mechanism.initial_response())
    play.find(ScramKeysRequested)
    play.engine.provide_scram_keys(stored)
    return mechanism.respond(challenge(play))


def refused(play, code: SaslCode = SaslCode.AUTH) -> None:
    play << SaslOutcome(code=code)
    error = play.find(Terminated).error
    assert isinstance(error, AuthenticationError) and error.code == code.value
    assert play.engine.finished


# -- the server -----------------------------------------------------------------------------


@pytest.mark.spec("5.3.2")
@pytest.mark.parametrize("name", SCRAM_MECHANISMS)
def test_both_sides_prove_that_they_know_the_password(server, name):
    mechanism = Scram(name, "user", "pencil")
    server >> SaslInit(
        mechanism=name, initial_response=mechanism.initial_response(), hostname="host"
    )
    asked = server.event(ScramKeysRequested)
    assert (asked.mechanism, asked.username, asked.hostname) == (name, "user", "host")
    server.quiet()
    server.engine.provide_scram_keys(keys(name))
    server >> SaslResponse(response=mechanism.respond(challenge(server)))
    # Whether a user who knows the password may come in is asked all the same.
    verdict = server.event(AuthenticationRequested)
    assert (verdict.mechanism, verdict.username, verdict.password) == (name, "user", None)
    server.quiet()
    server.engine.accept_authentication()
    (outcome,) = server.take()
    assert outcome.body.code is SaslCode.OK
    mechanism.finish(outcome.body.additional_data)
    assert server.event(Authenticated).username == "user"
    server >> AMQP_HEADER << AMQP_HEADER


def test_a_user_who_proves_the_password_can_still_be_turned_away(server):
    final = shake(server, Scram(NAME, "user", "pencil"), keys())
    server >> SaslResponse(response=final)
    server.event(AuthenticationRequested)
    server.engine.reject_authentication(SaslCode.AUTH)
    # Without the server's proof, which only a success carries (§5.3.3.5).
    refused(server)


@pytest.mark.spec("5.3.3.6")
def test_wrong_password(server):
    final = shake(server, Scram(NAME, "user", "pencil!"), keys())
    server >> SaslResponse(response=final)
    refused(server)


def test_unknown_user_even_without_a_password(server):
    final = shake(server, Scram(NAME, "user", "x"), None)
    server >> SaslResponse(response=final)
    refused(server)


def no_derivation(monkeypatch) -> None:
    """Whoever derives keys from a password from here on fails the test."""

    def derive(*_):
        raise AssertionError("keys were derived")

    monkeypatch.setattr("scramp.utils.hi_pbkdf2_hmac", derive)
    with pytest.raises(AssertionError):
        keys()


def shape(first: bytes) -> tuple[int, ...]:
    """What can be seen of a server-first message: the sizes of its parts, and the iterations."""
    fields = dict(part.split("=", 1) for part in first.decode().split(","))
    return len(fields["r"]), len(base64.b64decode(fields["s"])), int(fields["i"])


@pytest.mark.parametrize("name", SCRAM_MECHANISMS)
def test_unknown_user_looks_like_any_other(script, name):
    seen = {}
    for user in ("known", "unknown"):
        play = script(sasl_mechanisms=[name])
        play >> SASL_HEADER
        play.take()
        mechanism = Scram(name, user, "wrong")
        play >> SaslInit(mechanism=name, initial_response=mechanism.initial_response())
        play.engine.provide_scram_keys(
            ScramKeys.derive(name, "pencil") if user == "known" else None
        )
        first = challenge(play)
        play >> SaslResponse(response=mechanism.respond(first))
        (outcome,) = play.take()
        names = play.names()
        seen[user] = (shape(first), outcome.body, names)
    assert seen["known"] == seen["unknown"]


def test_salt_of_an_unknown_user_stays_the_same(script):
    salts = {}
    for attempt in range(2):
        for user in ("ann", "bob"):
            play = script(sasl_mechanisms=[NAME])
            play >> SASL_HEADER
            play.take()
            mechanism = Scram(NAME, user, "x")
            play >> SaslInit(mechanism=NAME, initial_response=mechanism.initial_response())
            play.engine.provide_scram_keys(None)
            salts[user, attempt] = challenge(play).split(b",")[1]
    assert salts["ann", 0] == salts["ann", 1] != salts["bob", 0] == salts["bob", 1]


def test_nothing_is_derived_for_an_unknown_user(server, monkeypatch):
    # It would take time, which for a user with stored keys is not taken.
    no_derivation(monkeypatch)
    server >> SaslInit(mechanism=NAME, initial_response=b"n,,n=user,r=abcdef")
    server.engine.provide_scram_keys(None)
    assert challenge(server).startswith(b"r=abcdef")


def test_what_was_recorded_is_of_no_use(script):
    """The first and last word of a client that was let in, said again."""
    recorded = Scram(NAME, "user", "pencil")
    first = recorded.initial_response()
    play = script(sasl_mechanisms=[NAME])
    play >> SASL_HEADER
    play.take()
    play >> SaslInit(mechanism=NAME, initial_response=first)
    play.engine.provide_scram_keys(keys())
    final = recorded.respond(challenge(play))
    play >> SaslResponse(response=final)
    play.find(AuthenticationRequested)

    again = script(sasl_mechanisms=[NAME])
    again >> SASL_HEADER
    again.take()
    again >> SaslInit(mechanism=NAME, initial_response=first)
    again.engine.provide_scram_keys(keys())
    challenge(again)
    again >> SaslResponse(response=final)
    refused(again)


@pytest.mark.parametrize(
    "response",
    [b"", b"n", b"n,,", b"n,,r=abc", b"user", b"n,,n=\xff,r=abc", b"\0user\0pencil"],
)
def test_client_first_without_a_name(server, response):
    server >> SaslInit(mechanism=NAME, initial_response=response)
    refused(server, SaslCode.SYS_PERM)


@pytest.mark.parametrize(
    "response",
    [
        # Channel binding, which was not offered; another identity; no nonce; what is not known.
        b"p=tls-unique,,n=user,r=abc",
        b"n,,n=user",
        b"n,,n=user,r=",
        b"n,,m=ext,n=user,r=abc",
        b"x,,n=user,r=abc",
    ],
)
def test_malformed_client_first(server, response):
    server >> SaslInit(mechanism=NAME, initial_response=response)
    server.event(ScramKeysRequested)
    server.engine.provide_scram_keys(keys())
    refused(server, SaslCode.SYS_PERM)


@pytest.mark.parametrize("response", [b"", b"c=biws", b"c=biws,r=abc,p=", b"\xff", b",,,", b"a=b"])
def test_malformed_client_final(server, response):
    shake(server, Scram(NAME, "user", "pencil"), keys())
    server >> SaslResponse(response=response)
    refused(server)


@pytest.mark.parametrize("seed", range(60))
def test_damaged_words_of_a_client_never_let_it_in(script, seed):
    random = Random(seed)
    play = script(sasl_mechanisms=[NAME])
    play >> SASL_HEADER
    play.take()
    final = bytearray(shake(play, Scram(NAME, "user", "pencil"), keys()))
    # The last bits of the proof's base64 mean nothing, so it is left alone at its end.
    at = random.randrange(len(final) - 3)
    final[at] ^= random.randrange(1, 256)
    play >> SaslResponse(response=bytes(final))
    refused(play)


def test_names_with_commas_and_equal_signs(server):
    mechanism = Scram(NAME, "a,b=c", "pencil")
    server >> SaslInit(mechanism=NAME, initial_response=mechanism.initial_response())
    assert server.event(ScramKeysRequested).username == "a,b=c"
    server.engine.provide_scram_keys(keys())
    server >> SaslResponse(response=mechanism.respond(challenge(server)))
    assert server.event(AuthenticationRequested).username == "a,b=c"


def test_keys_that_nobody_asked_for(server):
    with pytest.raises(LocalProtocolError):
        server.engine.provide_scram_keys(None)
    server >> SaslInit(mechanism=NAME, initial_response=b"n,,n=user,r=abc")
    with pytest.raises(LocalProtocolError):
        server.engine.accept_authentication()
    server.engine.provide_scram_keys(keys())
    server.take()
    with pytest.raises(LocalProtocolError):
        server.engine.provide_scram_keys(keys())
    server.eof()
    server.engine.provide_scram_keys(keys())
    assert server.engine.finished


def test_words_out_of_turn(server):
    server >> SaslInit(mechanism=NAME, initial_response=b"n,,n=user,r=abc")
    server.event(ScramKeysRequested)
    # It waits for the keys as for a verdict.
    server >> SaslResponse(response=b"c=biws")
    server.quiet()
    server.engine.provide_scram_keys(keys())
    server << SaslChallenge
    refused(server)


def test_second_init_in_the_exchange(server):
    init = SaslInit(mechanism=NAME, initial_response=b"n,,n=user,r=abc")
    server >> init
    server.engine.provide_scram_keys(keys())
    server << SaslChallenge
    server >> init
    refused(server, SaslCode.SYS_PERM)


# -- the client -----------------------------------------------------------------------------


class Referee:
    """A server written down from RFC 5802, with each of its words open to tampering."""

    def __init__(self, client_first: bytes, password: str = "pencil") -> None:
        bare = client_first.split(b",", 2)[2]
        self.nonce = dict(p.split(b"=", 1) for p in bare.split(b","))[b"r"] + b"server"
        self.bare = bare
        self.salted = hashlib.pbkdf2_hmac("sha256", password.encode(), SALT, 4096)

    def first(self, nonce: bytes | None = None, iterations: bytes = b"4096") -> bytes:
        self.said = b"r=%s,s=%s,i=%s" % (
            self.nonce if nonce is None else nonce,
            base64.b64encode(SALT),
            iterations,
        )
        return self.said

    def final(self, client_final: bytes) -> bytes:
        without_proof = client_final.rsplit(b",p=", 1)[0]
        message = b",".join((self.bare, self.said, without_proof))
        server_key = hmac.digest(self.salted, b"Server Key", "sha256")
        return b"v=" + base64.b64encode(hmac.digest(server_key, message, "sha256"))


def answer(play) -> bytes:
    (item,) = play.take()
    assert isinstance(item.body, SaslResponse)
    return item.body.response


def given_up(play) -> AuthenticationError:
    play.quiet()
    error = play.find(Terminated).error
    assert isinstance(error, AuthenticationError)
    return error


@pytest.mark.spec("5.3.3.5")
def test_proof_of_the_server_with_the_outcome(client):
    referee = Referee(client.first)
    client >> SaslChallenge(challenge=referee.first())
    proof = referee.final(answer(client))
    client >> SaslOutcome(code=SaslCode.OK, additional_data=proof) << AMQP_HEADER
    assert client.event(Authenticated).username == "user"


def test_proof_of_the_server_as_a_challenge(client):
    referee = Referee(client.first)
    client >> SaslChallenge(challenge=referee.first())
    client >> SaslChallenge(challenge=referee.final(answer(client)))
    client << SaslResponse(response=b"")
    client >> SaslOutcome(code=SaslCode.OK) << AMQP_HEADER
    assert client.event(Authenticated).mechanism == NAME


def test_server_that_does_not_know_the_password(client):
    referee = Referee(client.first, "guessed")
    client >> SaslChallenge(challenge=referee.first())
    proof = referee.final(answer(client))
    client >> SaslOutcome(code=SaslCode.OK, additional_data=proof)
    assert "has not proved" in str(given_up(client))


@pytest.mark.parametrize("data", [None, b"", b"v=", b"v=AAAA", b"e=other-error", b"\xff"])
def test_server_without_a_proof(client, data):
    client >> SaslChallenge(challenge=Referee(client.first).first())
    answer(client)
    client >> SaslOutcome(code=SaslCode.OK, additional_data=data)
    assert "has not proved" in str(given_up(client))


def test_success_out_of_the_blue(client):
    client >> SaslOutcome(code=SaslCode.OK)
    given_up(client)


def test_wrong_proof_as_a_challenge(client):
    client >> SaslChallenge(challenge=Referee(client.first).first())
    answer(client)
    client >> SaslChallenge(challenge=b"v=" + base64.b64encode(b"0" * 32))
    given_up(client)


def test_proof_twice(client):
    referee = Referee(client.first)
    client >> SaslChallenge(challenge=referee.first())
    proof = referee.final(answer(client))
    client >> SaslChallenge(challenge=proof) << SaslResponse
    client >> SaslChallenge(challenge=proof)
    given_up(client)


def test_nonce_that_is_not_a_continuation_of_ours(client):
    client >> SaslChallenge(challenge=Referee(client.first).first(nonce=b"recorded"))
    given_up(client)


@pytest.mark.parametrize("iterations", [b"0", b"1", b"4095", b"-4096", b"", b"x", b"4e3"])
def test_too_few_iterations(client, iterations):
    client >> SaslChallenge(challenge=Referee(client.first).first(iterations=iterations))
    given_up(client)


@pytest.mark.parametrize("iterations", [MAX_ITERATIONS + 1, 2**31, 10**30])
def test_iterations_that_would_keep_us_busy(client, iterations, monkeypatch):
    first = Referee(client.first).first(iterations=str(iterations).encode())
    no_derivation(monkeypatch)
    client >> SaslChallenge(challenge=first)
    given_up(client)


@pytest.mark.parametrize(
    "first", [b"", b"r=", b"\xff", b"r=a,s=%,i=4096", b"e=unknown-user", b",,"]
)
def test_malformed_server_first(client, first):
    client >> SaslChallenge(challenge=first)
    given_up(client)


def test_an_object_serves_one_exchange_after_the_other(script):
    mechanism = Scram(NAME, "user", "pencil")
    for _ in range(2):
        play = script(sasl_mechanisms=[NAME])
        play >> SASL_HEADER
        play.take()
        final = shake(play, mechanism, keys())
        play >> SaslResponse(response=final)
        play.find(AuthenticationRequested)
        play.engine.accept_authentication()
        (outcome,) = play.take()
        mechanism.finish(outcome.body.additional_data)


def test_name_that_saslprep_does_not_allow(script):
    play = script(initiator=True, sasl=Scram(NAME, "us\x07er", "pencil"))
    play << SASL_HEADER
    play >> SASL_HEADER
    play.events()
    play >> SaslMechanisms(sasl_server_mechanisms=[NAME])
    given_up(play)


# -- choice ---------------------------------------------------------------------------------


@pytest.mark.spec("5.3.3.2")
@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (["PLAIN", "SCRAM-SHA-1", "SCRAM-SHA-256", "SCRAM-SHA-512"], "SCRAM-SHA-512"),
        (["ANONYMOUS", "SCRAM-SHA-1", "PLAIN", "SCRAM-SHA-256"], "SCRAM-SHA-256"),
        (["PLAIN", "SCRAM-SHA-1"], "SCRAM-SHA-1"),
        (["ANONYMOUS", "PLAIN", "GSSAPI"], "PLAIN"),
    ],
)
def test_the_strongest_that_is_offered(script, offered, chosen):
    play = script(initiator=True, sasl=password_mechanisms("user", "pencil"))
    play << SASL_HEADER
    play >> SASL_HEADER >> SaslMechanisms(sasl_server_mechanisms=offered)
    play << like(SaslInit, mechanism=chosen)


@pytest.mark.spec("5.3.2")
@pytest.mark.parametrize("offered", [["PLAIN"], ["ANONYMOUS"], ["LOGIN", "PLAIN", "SCRAM-MD5"]])
def test_nothing_weaker_than_what_was_asked_for(script, offered):
    play = script(initiator=True, sasl=password_mechanisms("user", "pencil", plain=False))
    play << SASL_HEADER
    play >> SASL_HEADER >> SaslMechanisms(sasl_server_mechanisms=offered)
    error = given_up(play)
    assert "SCRAM-SHA-512" in str(error) and offered[0] in str(error)


def test_plain_comes_last_and_only_where_it_may():
    names = [m.name for m in password_mechanisms("user", "pencil")]
    assert names == ["SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN"]
    assert "PLAIN" not in [m.name for m in password_mechanisms("user", "pencil", plain=False)]


# -- keys and secrets -------------------------------------------------------------------------


def test_keys_hold_no_password_and_differ_in_salt():
    ours, theirs = ScramKeys.derive(NAME, "pencil"), ScramKeys.derive(NAME, "pencil")
    assert ours.salt != theirs.salt and ours.stored_key != theirs.stored_key
    assert ours.iterations == 4096


@pytest.mark.parametrize(
    ("name", "iterations", "salt"),
    [("SCRAM-MD5", None, None), (NAME, 100, None), (NAME, None, b"short")],
)
def test_keys_that_cannot_be_derived(name, iterations, salt):
    with pytest.raises(ValueError):
        ScramKeys.derive(name, "pencil", iterations, salt)


def test_unknown_mechanism():
    with pytest.raises(ValueError, match="SCRAM-SHA-512"):
        Scram("SCRAM-MD5", "user", "pencil")


def test_no_secret_is_shown():
    stored = keys()
    for thing in (Scram(NAME, "user", "pencil"), Plain("user", "pencil"), stored):
        text = repr(thing) + str(thing)
        assert "pencil" not in text and repr(stored.stored_key) not in text
