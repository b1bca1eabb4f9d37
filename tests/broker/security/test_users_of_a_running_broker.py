"""A broker whose users are in a file that changes: clients over real sockets."""

# ruff: noqa: ASYNC240

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import ferrymq
from ferrymq.engine import Anonymous, Plain, Scram
from ferrymq.errors import AuthenticationError, ConnectionClosed
from ferrymq_broker.config import Config, Listener
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.config.security import Security
from ferrymq_broker.security import users_on_disk
from ferrymq_broker.security.hashing import make_user
from ferrymq_broker.security.users import StoredUser
from ferrymq_broker.security.users_file import edited_users, write_users
from ferrymq_broker.server import BrokerServer
from ferrymq_types.security import SaslCode, SaslInit
from tests.broker.security.logins import ALICE, BOB, until
from tests.support.script import SASL_HEADER, encoded


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "users.json"
    write_users(path, {"alice": ALICE, "bob": BOB})
    return path


def broker_of(path: Path, **security: object) -> BrokerServer:
    """A broker with the users of the file."""
    return BrokerServer(
        Config(
            listener=[Listener(url="amqp://127.0.0.1:0")],
            security=Security.model_validate({"users-file": path, **security}),
        )
    )


@pytest.fixture
async def server(path: Path) -> AsyncIterator[BrokerServer]:
    async with broker_of(path) as server:
        yield server


def url(server: BrokerServer, user: str = "", password: str = "") -> str:
    who = f"{user}:{password}@" if user else ""
    return f"amqp://{who}127.0.0.1:{server.port}"


async def code_of(server: BrokerServer, sasl: object) -> int | None:
    """The code of the outcome by which a login is refused."""
    with pytest.raises(ferrymq.AmqpError) as caught:
        async with ferrymq.connect(url(server), sasl=sasl):  # type: ignore[arg-type]
            pass
    error: BaseException | None = caught.value
    while error is not None and not isinstance(error, AuthenticationError):
        error = error.__cause__
    return None if error is None else error.code


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-1", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_passwords_are_good_by_every_mechanism(server: BrokerServer, mechanism: str) -> None:
    def by(user: str, password: str) -> Plain | Scram:
        if mechanism == "PLAIN":
            return Plain(user, password)
        return Scram(mechanism, user, password)

    async with ferrymq.connect(url(server), sasl=by("alice", "sésame")):
        (handler,) = server.broker.handlers
        assert handler.client.identity is not None
        assert (handler.client.identity.user, handler.client.identity.groups) == (
            "alice",
            {"staff"},
        )
        assert handler.client.identity.mechanism == mechanism
    for user, password in (("alice", "wrong"), ("nobody", "sésame")):
        assert await code_of(server, by(user, password)) == SaslCode.AUTH
    assert server.broker.counters.logins_refused == 2


async def test_who_gives_no_name_stays_outside(server: BrokerServer) -> None:
    assert await code_of(server, Anonymous()) is None
    with pytest.raises(ferrymq.AmqpError):
        async with ferrymq.connect(url(server), sasl=None):
            pass


async def test_a_new_user_gets_in_at_once(server: BrokerServer, path: Path) -> None:
    for sasl in (Scram("SCRAM-SHA-256", "carol", "new"), Plain("carol", "new")):
        assert await code_of(server, sasl) == SaslCode.AUTH
    with edited_users(path) as users:
        users["carol"] = make_user("new", (), 4096)
    async with ferrymq.connect(url(server), sasl=Scram("SCRAM-SHA-256", "carol", "new")):
        pass
    async with ferrymq.connect(url(server), sasl=Plain("carol", "new")):
        pass


async def test_the_login_that_finds_the_change_goes_on(server: BrokerServer, path: Path) -> None:
    for password in ("one", "two"):
        with edited_users(path) as users:
            users["alice"] = make_user(password, (), 4096)
        async with ferrymq.connect(url(server), sasl=Scram("SCRAM-SHA-256", "alice", password)):
            pass
        with edited_users(path) as users:
            users["alice"] = make_user(password, ["other"], 4096)
        async with ferrymq.connect(url(server), sasl=Plain("alice", password)):
            pass


@pytest.mark.parametrize("change", ["deleted", "password", "groups"])
async def test_who_is_changed_is_disconnected_and_nobody_else(
    server: BrokerServer, path: Path, change: str
) -> None:
    async with (
        ferrymq.connect(url(server, "alice", "sésame")) as alice,
        ferrymq.connect(url(server), sasl=Plain("bob", "open")) as bob,
    ):
        with edited_users(path) as users:
            match change:
                case "deleted":
                    del users["alice"]
                case "password":
                    users["alice"] = make_user("other", ["staff"], 4096)
                case "groups":
                    users["alice"] = StoredUser(ALICE.password, ALICE.scram)
        server.reload()
        with pytest.raises(ConnectionClosed) as caught:
            await alice.wait_closed()
        assert caught.value.error is not None
        assert caught.value.error.condition == "amqp:unauthorized-access"
        await bob.session()
    if change == "groups":
        async with ferrymq.connect(url(server, "alice", "sésame")):
            pass
    elif change == "password":
        async with ferrymq.connect(url(server, "alice", "other")):
            pass
    else:
        assert await code_of(server, Plain("alice", "sésame")) == SaslCode.AUTH


async def test_a_login_that_is_under_way_ends_too(
    server: BrokerServer, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Who knows the old password has begun to prove it, and goes on when there is a new one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    first = Scram("SCRAM-SHA-256", "alice", "sésame").initial_response()
    assert first is not None
    writer.write(SASL_HEADER)
    writer.write(encoded(SaslInit(mechanism="SCRAM-SHA-256", initial_response=first)))
    # The header, the mechanisms, and the challenge with the nonce.
    await reader.readuntil(b"i=4096")
    with edited_users(path) as users:
        users["alice"] = make_user("other", (), 4096)
    server.reload()
    await reader.read()
    assert "connection of a changed user closed" in caplog.text
    writer.close()


async def test_a_broken_file_changes_nothing(
    server: BrokerServer, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = path.read_bytes()
    path.write_bytes(good[:-20])
    server.reload()
    async with ferrymq.connect(url(server, "alice", "sésame")) as alice:
        server.admission.authenticators.refresh()
        assert caplog.text.count("users stay as they were") == 1
        path.unlink()
        server.admission.authenticators.refresh()
        server.admission.authenticators.refresh()
        assert caplog.text.count("users stay as they were") == 2
        await alice.session()
    async with ferrymq.connect(url(server), sasl=Plain("alice", "sésame")):
        pass
    # Good again.
    write_users(path, {"bob": BOB})
    assert await code_of(server, Plain("alice", "sésame")) == SaslCode.AUTH


async def test_a_large_file_is_read_beside_the_event_loop(
    server: BrokerServer, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users_on_disk, "AT_ONCE", 100)
    with edited_users(path) as users:
        users["carol"] = make_user("new", (), 4096)
        del users["bob"]
    # Who says a password waits for what there is to read.
    async with ferrymq.connect(url(server), sasl=Plain("carol", "new")):
        pass
    assert await code_of(server, Scram("SCRAM-SHA-1", "bob", "open")) == SaslCode.AUTH
    path.write_text("broken")
    async with ferrymq.connect(url(server), sasl=Plain("carol", "new")):
        pass


async def test_a_broker_without_its_file_does_not_start(path: Path) -> None:
    path.unlink()
    with pytest.raises(ConfigError, match="No such file"):
        await broker_of(path).start()


async def test_others_can_read_the_file(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.chmod(0o644)
    async with broker_of(path):
        assert "others can read the hashes of passwords" in caplog.text


async def test_who_fails_too_often_is_put_off_whatever_the_mechanism(path: Path) -> None:
    async with broker_of(path, **{"failed-logins": 4}) as server:
        for sasl in (Scram("SCRAM-SHA-256", "bob", "x"), Plain("bob", "x")) * 2:
            assert await code_of(server, sasl) == SaslCode.AUTH
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-1"):
            assert await code_of(server, Scram(mechanism, "bob", "open")) == SaslCode.SYS_TEMP
        assert await code_of(server, Plain("bob", "open")) == SaslCode.SYS_TEMP
        # Others are not concerned.
        async with ferrymq.connect(url(server, "alice", "sésame")):
            pass
        assert server.broker.counters.logins_refused == 7
        assert server.broker.counters.logins_put_off == 3


async def test_a_client_that_does_not_wait_costs_no_hash(server: BrokerServer) -> None:
    passwords = server.admission.authenticators._passwords
    go_on, begun = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    asked: list[str] = []

    def verify(hashed: str, password: str, /) -> bool:
        asked.append(password)
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(30)
        return False

    passwords._verify = verify  # type: ignore[union-attr]
    writers = []
    for number in range(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        response = b"\0alice\0wrong %d" % number
        writer.write(SASL_HEADER + encoded(SaslInit(mechanism="PLAIN", initial_response=response)))
        await reader.readexactly(8)
        writers.append(writer)
    await begun.wait()
    for writer in writers:
        writer.transport.abort()
    await until(lambda: not server.broker.handlers)
    go_on.set()
    await until(lambda: not server.admission.authenticators._tasks)
    assert len(asked) == 1
