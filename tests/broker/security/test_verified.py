"""Good passwords that are remembered: for how long, how many, and what is kept of them."""

from __future__ import annotations

from ferrymq_broker.security import password_cache
from ferrymq_broker.security.password_cache import PasswordCache, PasswordDigest
from tests.broker.security.logins import Clock


def test_digests_tell_users_and_passwords_apart() -> None:
    digest = PasswordDigest()
    said = {digest.of(*pair) for pair in (("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", ""))}
    assert len(said) == 4
    assert digest.of("a", "bc") in said
    # Another process has another key.
    assert PasswordDigest().of("a", "bc") not in said


def test_what_is_no_text_has_a_digest_all_the_same() -> None:
    assert PasswordDigest().of("\ud800", "\udfff")


def test_being_asked_prolongs_nothing() -> None:
    clock = Clock()
    good = PasswordCache(clock)
    good.remember("ann", b"1")
    for _ in range(59):
        clock.now += 1
        assert good.knows("ann", b"1")
    clock.now += 1
    assert not good.knows("ann", b"1")
    assert len(good) == 0


def test_only_the_last_good_password_is() -> None:
    good = PasswordCache(Clock())
    good.remember("ann", b"1")
    good.remember("ann", b"2")
    assert not good.knows("ann", b"1")
    assert good.knows("ann", b"2")
    assert not good.knows("bob", b"2")


def test_there_are_only_so_many() -> None:
    good = PasswordCache(Clock())
    for number in range(password_cache.MOST + 10):
        good.remember(str(number), b"1")
    assert len(good) == password_cache.MOST
    assert not good.knows("9", b"1")
    assert good.knows("10", b"1")
    good.forget()
    assert len(good) == 0
