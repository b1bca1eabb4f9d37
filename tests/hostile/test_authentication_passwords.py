"""Passwords: who is unknown and who is wrong look alike, and nobody tries more than he may."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferrymq_broker.security.hashing import make_user
from ferrymq_broker.security.users_file import edited_users, write_users
from tests.hostile.logins import AUTH, OK, SYS_TEMP, Scram, begin, log_in, outcome, plain, prove
from tests.hostile.site import Site
from tests.raw.client import PATIENCE, Client
from tests.raw.frames import AMQP_HEADER, SASL_HEADER, open_frame, sasl_init
from tests.raw.process import MIB, Broker

PASSWORD = "correct horse"
# In a minute.
FAILURES = 200


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with users, each with a slow hash."""
    path = tmp_path_factory.mktemp("users") / "users.json"
    user = make_user(PASSWORD, (), 4096)
    write_users(path, dict.fromkeys(("alice", "bob", "carol", "dave", "eve"), user))
    return path


@pytest.fixture(scope="module")
def config(users: Path) -> str:
    """Those users; the witness gives no name."""
    return f"""
[security]
anonymous = true
failed-logins = {FAILURES}
users-file = "{users}"
"""


def everything_said(port: int, said: bytes) -> bytes:
    """All that the broker answers, up to its end."""
    with Client(port) as client:
        client.send(said)
        data = b""
        while piece := client.take(4096):
            data += piece
        return data


def test_unknown_and_wrong_are_told_the_same(site: Site) -> None:
    """Byte by byte, with PLAIN."""
    heard = {
        everything_said(site.port, SASL_HEADER + sasl_init("PLAIN", plain(name, "wrong")))
        for name in ("alice", "nobody", "n" * 255, "al\u0130ce")
    }
    assert len(heard) == 1


def test_unknown_and_wrong_are_challenged_the_same(site: Site) -> None:
    """With SCRAM the salt and the nonce differ, and nothing else; a salt stays what it is."""
    shapes = set()
    for name in ("alice", "nobody", "alice", "nobody"):
        with Client(site.port) as client:
            scram = Scram(client, name)
            scram.start()
            found = scram.attributes
            shapes.add((tuple(found), len(found["r"]), len(found["s"]), found["i"]))
            assert scram.finish(scram.proof("wrong")) == AUTH
    assert len(shapes) == 1
    salts = []
    for name in ("alice", "nobody") * 2:
        with Client(site.port) as client:
            scram = Scram(client, name)
            scram.start()
            salts.append(scram.attributes["s"])
    assert salts[:2] == salts[2:]


def test_unknown_and_wrong_take_the_same_time(site: Site) -> None:
    """A slow hash in either case: a name that is not looked up would be told at once."""
    took: dict[str, list[float]] = {}

    def attempt(name: str, password: str) -> float:
        began = time.perf_counter()
        assert log_in(site.port, "PLAIN", plain(name, password)) == AUTH
        return time.perf_counter() - began

    for number in range(12):
        for name in ("bob", "nobody"):
            took.setdefault(name, []).append(attempt(name, f"wrong {number}"))
    known, unknown = (statistics.median(seconds) for seconds in took.values())
    assert 0.5 < known / unknown < 2, f"{1e3 * known:.1f} ms and {1e3 * unknown:.1f} ms"
    assert min(known, unknown) > 0.002


def test_exchanges_begun_in_time_try_no_more(users: Path) -> None:
    """SCRAM in many connections at once: when the failures have been too many, the right proof is
    answered like the wrong ones."""
    security = f'[security]\nfailed-logins = 5\nusers-file = "{users}"\n'
    with Broker(security) as broker:
        clients = [Client(broker.port) for _ in range(12)]
        exchanges = [Scram(client, "carol") for client in clients]
        for scram in exchanges:
            scram.start()
        heard = [scram.finish(scram.proof("wrong")) for scram in exchanges[:-1]]
        assert heard == [AUTH] * 11
        assert exchanges[-1].finish(exchanges[-1].proof(PASSWORD)) == AUTH
        # Who begins now is asked to come later, and no password is looked at.
        assert prove(broker.port, "carol", PASSWORD) == SYS_TEMP
        assert log_in(broker.port, "PLAIN", plain("carol", PASSWORD)) == SYS_TEMP
        # It is only about this user.
        assert prove(broker.port, "dave", PASSWORD) == OK
        for client in clients:
            client.socket.close()


def test_a_flood_of_logins(site: Site) -> None:
    """Hundreds of slow hashes at once: others are served, one hash has memory at a time, and who
    has a good password gets in."""
    before = site.broker.memory()
    site.broker.forget_peak()

    def attack() -> None:
        clients = [Client(site.port) for _ in range(300)]
        for number, client in enumerate(clients):
            said = plain(f"stranger {number}", "x")
            client.send(SASL_HEADER, sasl_init("PLAIN", said), AMQP_HEADER, open_frame())
        for client in clients[:10]:
            assert client.take(8) == SASL_HEADER
            client.expect("sasl-mechanisms")
            assert outcome(client) in (AUTH, SYS_TEMP)
        for client in clients:
            client.socket.close()

    site.endures(attack, 32 * MIB)
    # At twenty megabytes each, three hundred would be six gigabytes.
    assert site.broker.peak() - before < 96 * MIB
    deadline = time.monotonic() + PATIENCE
    while (code := log_in(site.port, "PLAIN", plain("dave", PASSWORD))) == SYS_TEMP:
        assert time.monotonic() < deadline
    assert code == OK


def test_a_flood_of_proofs(site: Site) -> None:
    """SCRAM costs the broker no slow hash."""

    def attack() -> None:
        for number in range(40):
            with Client(site.port) as client:
                scram = Scram(client, f"stranger {number}")
                scram.start()
                scram.finish(b"c=biws,r=" + scram.attributes["r"].encode() + b",p=AAAA")

    site.endures(attack)


def test_gone_between_the_question_and_the_answer(site: Site) -> None:
    """The verdict on somebody who is gone lets nobody in."""

    def attack() -> None:
        for number in range(20):
            with Client(site.port) as client:
                client.send(SASL_HEADER, sasl_init("PLAIN", plain(f"gone {number}", "wrong")))

    # Thousands of connections, which are collected later.
    site.endures(attack, 32 * MIB)
    assert log_in(site.port, "PLAIN", plain("eve", PASSWORD)) == OK


@pytest.fixture
def changing(tmp_path: Path) -> Iterator[tuple[Path, Broker]]:
    """A broker whose users come and go."""
    path = tmp_path / "users.json"
    write_users(path, {"alice": make_user(PASSWORD, (), 4096)})
    with Broker(f'[security]\nusers-file = "{path}"\n') as broker:
        yield path, broker


def test_who_is_deleted_is_out_and_stays_out(changing: tuple[Path, Broker]) -> None:
    """In the middle of a SCRAM exchange, connected already, by a remembered password."""
    path, broker = changing
    assert log_in(broker.port, "PLAIN", plain("alice", PASSWORD)) == OK
    with Client(broker.port) as connected, Client(broker.port) as exchanging:
        begin(connected, "PLAIN", plain("alice", PASSWORD)).expect("sasl-outcome")
        connected.open()
        scram = Scram(exchanging, "alice")
        scram.start()
        with edited_users(path) as users:
            users.clear()
        # Whoever comes next has the broker look at the file.
        assert log_in(broker.port, "PLAIN", plain("alice", PASSWORD)) == AUTH
        assert connected.verdict()[:2] == ("connection", "amqp:unauthorized-access")
        exchanging.send()
        assert exchanging.read() is None
    assert prove(broker.port, "alice", PASSWORD) == AUTH


def test_half_a_file_of_users_changes_nothing(changing: tuple[Path, Broker]) -> None:
    """Nobody is locked out by an editor, and nobody let in."""
    path, broker = changing
    for content in (b"", b"{", b'{"format": 1, "users": {}', b"\xff" * 100, b"[" * 9999, b"null"):
        path.write_bytes(content)
        assert log_in(broker.port, "PLAIN", plain("alice", PASSWORD)) == OK
        assert log_in(broker.port, "PLAIN", plain("alice", "wrong")) == AUTH
        assert prove(broker.port, "alice", PASSWORD) == OK
    assert broker.log.count("users stay as they were") == 6
    # They are mistakes, though not the broker's.
    broker._seen = len(broker.log)
