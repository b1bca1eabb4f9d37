"""Passwords of a file: the same work for everybody, and none twice."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from ferrymq_broker.connections.authentication import ClientTransport
from ferrymq_broker.security import stored_passwords
from ferrymq_broker.security.hashing import make_user
from ferrymq_broker.security.password_cache import SECONDS
from ferrymq_broker.security.stored_passwords import StoredPasswords
from ferrymq_broker.security.throttle import Throttle
from ferrymq_broker.security.users_file import edited_users
from ferrymq_types.security import SaslCode
from tests.broker.security.logins import (
    AFAR,
    ALICE,
    BOB,
    SAFE,
    StoredUsers,
    Verdict,
    afar,
    log_in,
    until,
)


@pytest.fixture
def users(tmp_path: Path) -> StoredUsers:
    return StoredUsers(tmp_path / "users.json", carol="configured")


@pytest.mark.parametrize(
    ("name", "password", "welcome"),
    [
        ("alice", "sésame", True),
        ("bob", "open", True),
        ("carol", "configured", True),
        ("alice", "wrong", False),
        ("carol", "wrong", False),
        ("nobody", "sésame", False),
        ("nobody", "", False),
        ("", "", False),
    ],
)
async def test_every_login_takes_one_slow_hash(
    users: StoredUsers, name: str, password: str, welcome: bool
) -> None:
    verdict = await log_in(users.authenticators, name, password)
    assert verdict.user == (name if welcome else None)
    assert users.verified() == 1


async def test_who_is_unknown_and_who_is_wrong_hear_the_same(users: StoredUsers) -> None:
    heard = {
        (verdict.reason, verdict.code)
        for name in ("alice", "carol", "nobody")
        for verdict in [await log_in(users.authenticators, name, "wrong")]
    }
    assert len(heard) == 1


async def test_the_hash_of_nobody_costs_what_the_others_cost(users: StoredUsers) -> None:
    await log_in(users.authenticators, "alice", "wrong")
    await log_in(users.authenticators, "nobody", "wrong")
    real, made_up = (hashed.rsplit("$", 2) for hashed, _ in users.verifier.asked)
    assert real[0] == made_up[0]
    assert [len(part) for part in real] == [len(part) for part in made_up]


def test_argon2_itself(tmp_path: Path) -> None:
    """The real thing, once."""

    async def attempt() -> list[str | None]:
        stored = StoredUsers(tmp_path / "users.json")
        real = StoredPasswords(stored.path, {}, Throttle(0), lambda _: None)
        stored.authenticators._methods = [real]
        try:
            return [
                (await log_in(stored.authenticators, name, password)).user
                for name, password in (("alice", "sésame"), ("alice", "x"), ("nobody", "x"))
            ]
        finally:
            real.close()

    assert asyncio.run(attempt()) == ["alice", None, None]


async def test_groups_come_from_the_file(users: StoredUsers) -> None:
    verdict = await log_in(users.authenticators, "alice", "sésame")
    assert verdict.identity is not None and verdict.identity.groups == {"staff"}
    proved = await log_in(users.authenticators, "alice", None, AFAR, "SCRAM-SHA-512")
    assert proved.identity is not None and proved.identity.groups == {"staff"}


# -- remembered --------------------------------------------------------------------------------


async def test_a_good_password_is_good_for_a_minute(users: StoredUsers) -> None:
    for _ in range(3):
        assert (await log_in(users.authenticators, "alice", "sésame")).user == "alice"
    assert users.verified() == 1
    users.clock.now += SECONDS - 1
    await log_in(users.authenticators, "alice", "sésame")
    assert users.verified() == 0
    users.clock.now += 1
    await log_in(users.authenticators, "alice", "sésame")
    assert users.verified() == 1


async def test_another_password_is_not_remembered(users: StoredUsers) -> None:
    await log_in(users.authenticators, "alice", "sésame")
    users.verified()
    for _ in range(2):
        assert (await log_in(users.authenticators, "alice", "wrong")).identity is None
    assert users.verified() == 2


async def test_nothing_is_remembered_of_a_file_that_has_changed(users: StoredUsers) -> None:
    await log_in(users.authenticators, "bob", "open")
    await log_in(users.authenticators, "alice", "sésame")
    users.verified()
    users.delete("alice")
    assert (await log_in(users.authenticators, "alice", "sésame")).identity is None
    assert (await log_in(users.authenticators, "bob", "open")).user == "bob"
    assert users.verified() == 2
    assert users.changed == [{"alice"}]


async def test_many_logins_with_one_password_take_one_hash(users: StoredUsers) -> None:
    verdicts = await asyncio.gather(
        *(log_in(users.authenticators, "alice", "sésame") for _ in range(1000))
    )
    assert {verdict.user for verdict in verdicts} == {"alice"}
    assert users.verified() == 1


# -- in line -----------------------------------------------------------------------------------


class Slow:
    """Verifies when it is told to."""

    def __init__(self, users: StoredUsers) -> None:
        self.begun = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.go_on = threading.Event()
        self.inner = users.verifier
        self.at_once = 0
        users.passwords._verify = self

    def __call__(self, hashed: str, password: str, /) -> bool:
        self.at_once += 1
        assert self.at_once == 1
        self.loop.call_soon_threadsafe(self.begun.set)
        assert self.go_on.wait(30)
        self.at_once -= 1
        return self.inner(hashed, password)


async def done(logins: list[asyncio.Future[Verdict]], count: int) -> list[Verdict]:
    """Those that are decided on, when there are so many."""
    await until(lambda: sum(login.done() for login in logins) >= count)
    return [login.result() for login in logins if login.done()]


async def test_who_asks_when_others_have_just_given_up_gets_his_answer(users: StoredUsers) -> None:
    """Not even when nobody has tidied up behind them yet."""
    stored = users.passwords
    gone: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    gone.set_exception(stored_passwords._AbandonedError())
    stored._pending["alice", stored._digest.of("alice", "sésame")] = gone
    verdict = await asyncio.wait_for(log_in(users.authenticators, "alice", "sésame"), 20)
    assert verdict.user == "alice"
    assert not stored._pending


async def test_the_event_loop_does_not_wait_and_hashes_go_one_by_one(users: StoredUsers) -> None:
    slow = Slow(users)
    logins = [
        asyncio.ensure_future(
            log_in(users.authenticators, "alice", f"wrong {n}", afar(f"192.0.2.{n}"))
        )
        for n in range(20)
    ]
    await slow.begun.wait()
    assert not any(login.done() for login in logins)
    slow.go_on.set()
    assert {verdict.identity for verdict in await asyncio.gather(*logins)} == {None}
    assert users.verified() == 20


async def test_one_address_does_not_take_all_the_room(users: StoredUsers) -> None:
    slow = Slow(users)
    greedy = [
        asyncio.ensure_future(log_in(users.authenticators, "alice", f"wrong {n}", SAFE))
        for n in range(100)
    ]
    await slow.begun.wait()
    refused = await done(greedy, 36)
    assert {verdict.code for verdict in refused} == {SaslCode.SYS_TEMP}
    other = asyncio.ensure_future(log_in(users.authenticators, "bob", "open", afar("198.51.100.1")))
    slow.go_on.set()
    assert (await other).user == "bob"
    await asyncio.gather(*greedy)


async def test_a_network_of_ipv6_is_one_address(users: StoredUsers) -> None:
    """Who has one has more addresses than anybody can count."""
    slow = Slow(users)
    greedy = [
        asyncio.ensure_future(
            log_in(users.authenticators, "alice", f"{n}", afar(f"2001:db8::{n:x}"))
        )
        for n in range(100)
    ]
    await slow.begun.wait()
    refused = await done(greedy, 36)
    assert {verdict.code for verdict in refused} == {SaslCode.SYS_TEMP}
    slow.go_on.set()
    await asyncio.gather(*greedy)


async def test_when_too_many_wait_others_may_try_later(users: StoredUsers) -> None:
    slow = Slow(users)
    logins = [
        asyncio.ensure_future(
            log_in(users.authenticators, "alice", f"wrong {n}", afar(f"192.0.{n // 200}.{n % 200}"))
        )
        for n in range(300)
    ]
    await slow.begun.wait()
    await done(logins, 300 - 256)
    slow.go_on.set()
    codes = [(await login).code for login in logins]
    assert codes.count(SaslCode.SYS_TEMP) == 300 - 256
    # There is room again.
    assert (await log_in(users.authenticators, "bob", "open")).user == "bob"


async def test_who_changes_while_he_waits_does_not_get_in(users: StoredUsers) -> None:
    slow = Slow(users)
    login = asyncio.ensure_future(log_in(users.authenticators, "alice", "sésame"))
    await slow.begun.wait()
    with edited_users(users.path) as stored:
        stored["alice"] = make_user("another", (), 4096)
    assert users.authenticators.refresh()
    slow.go_on.set()
    verdict = await login
    assert (verdict.identity, verdict.code) == (None, SaslCode.SYS_TEMP)


async def test_failures_of_those_before_hold_off_those_who_wait(tmp_path: Path) -> None:
    users = StoredUsers(tmp_path / "users.json", failed_logins=5)
    verdicts = await asyncio.gather(
        *(log_in(users.authenticators, "alice", f"wrong {n}") for n in range(50))
    )
    # The next one has begun when it is known that one has failed.
    assert 5 <= users.verified() <= 6
    codes = [verdict.code for verdict in verdicts]
    assert codes.count(SaslCode.SYS_TEMP) >= 44


# -- SCRAM -------------------------------------------------------------------------------------


def test_made_up_keys_look_like_those_of_the_file(users: StoredUsers) -> None:
    real = users.authenticators.scram_keys("SCRAM-SHA-256", "alice")
    made_up = users.authenticators.scram_keys("SCRAM-SHA-256", "nobody")
    assert real is not None and made_up is not None
    assert real.iterations == made_up.iterations == 4096
    assert len(real.salt) == len(made_up.salt)


def test_keys_are_those_of_the_file_as_it_is(users: StoredUsers) -> None:
    before = users.authenticators.scram_keys("SCRAM-SHA-256", "alice")
    assert before is not None and before.stored_key == ALICE.scram["SCRAM-SHA-256"].stored_key
    with edited_users(users.path) as stored:
        stored["alice"] = BOB
    after = users.authenticators.scram_keys("SCRAM-SHA-256", "alice")
    assert after is not None and after.stored_key == BOB.scram["SCRAM-SHA-256"].stored_key


def test_the_configured_user_of_two_counts(tmp_path: Path) -> None:
    users = StoredUsers(tmp_path / "users.json", alice="configured")
    keys = users.authenticators.scram_keys("SCRAM-SHA-256", "alice")
    assert keys is not None and keys.stored_key != ALICE.scram["SCRAM-SHA-256"].stored_key

    async def attempt(password: str, transport: ClientTransport = SAFE) -> str | None:
        return (await log_in(users.authenticators, "alice", password, transport)).user

    assert asyncio.run(attempt("configured")) == "alice"
    assert asyncio.run(attempt("sésame")) is None
