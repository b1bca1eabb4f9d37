"""What may be said, and what is said, before a client has been let in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ferrymq_broker.security.hashing import make_user
from ferrymq_broker.security.users_file import write_users
from tests.hostile.crowd import connect, sockets
from tests.hostile.site import Site
from tests.raw.client import Client
from tests.raw.frames import (
    AMQP_HEADER,
    SASL_HEADER,
    SASL_RESPONSE,
    begin_frame,
    open_frame,
    sasl_frame,
    sasl_init,
)
from tests.raw.process import MIB
from tests.raw.values import binary

# A login, all of it, that takes long to decide on.
LOGIN = SASL_HEADER + sasl_init("PLAIN", b"\0alice\0wrong")
# More than may wait behind it: 64 KiB.
BEHIND = AMQP_HEADER + open_frame() + begin_frame() * 3_000


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file with a user whose hash is slow."""
    path = tmp_path_factory.mktemp("users") / "users.json"
    write_users(path, {"alice": make_user("correct horse", (), 4096)})
    yield path


@pytest.fixture(scope="module")
def config(users: Path) -> str:
    return f"""
[limits]
connections-per-address = 0

[security]
anonymous = true
failed-logins = 0
users-file = "{users}"
"""


def test_much_behind_a_login_that_waits_for_its_verdict(site: Site) -> None:
    """The hashes have a queue; whoever is in it is read no further than 64 KiB, and goes."""

    def attack() -> None:
        with sockets() as crowd:
            crowd.extend(connect(site.port) for _ in range(40))
            for one in crowd:
                one.sendall(LOGIN)
            # The last of them are far behind in the queue, which holds these as well.
            late = [Client(site.port) for _ in range(10)]
            site.broker.forget_peak()
            before = site.broker.memory()
            for client in late:
                client.send(LOGIN, BEHIND)
            for client in late:
                client.send(BEHIND * 100)
                while client.take(4096):
                    pass
                client.socket.close()
            # They send eighty megabytes, if they are let. One hash has memory at a time.
            assert site.broker.peak() - before < 40 * MIB

    assert len(BEHIND) > 65536
    attack()
    before = site.broker.memory()
    site.witness.is_served(attack)
    site.broker.check()
    site.broker.memory_is_back(before, 32 * MIB)


@pytest.mark.parametrize(
    "said",
    [
        SASL_HEADER,
        SASL_HEADER * 10,
        AMQP_HEADER * 10,
        AMQP_HEADER + begin_frame() * 1000,
        SASL_HEADER + sasl_init() * 1000,
        SASL_HEADER + sasl_init("SCRAM-SHA-256", b"n,,n=alice,r=nonce") * 100,
        SASL_HEADER
        + sasl_init("SCRAM-SHA-256", b"n,,n=alice,r=nonce")
        + sasl_frame(SASL_RESPONSE, binary(b"c=biws")) * 1000,
        b"GET / HTTP/1.1\r\n\r\n" * 1000,
    ],
    ids=["header", "headers", "amqp", "begins", "inits", "scrams", "responses", "http"],
)
def test_nobody_is_told_much_before_he_is_in(site: Site, said: bytes) -> None:
    """An answer at most to what is said first: there is nothing to be amplified, and nothing that
    a client could let pile up by not reading."""
    with Client(site.port) as client:
        client.send(said).half_close()
        heard = 0
        while piece := client.take(4096):
            heard += len(piece)
        assert heard < 1024
