"""Whoever fails too often is held off: for how long, and who is not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ferrymq_broker.connections.authentication import ClientTransport
from ferrymq_broker.security import throttle
from ferrymq_broker.security.throttle import LONGEST, Throttle
from tests.broker.security.logins import HERE, Clock, afar

EVE = afar("198.51.100.66")
HOME = afar("192.0.2.1")


def fail(held: Throttle, times: int, transport: ClientTransport = EVE, user: str = "ann") -> None:
    for _ in range(times):
        held.failed(transport, user)


def test_so_many_failures_are_free() -> None:
    held = Throttle(3, Clock())
    fail(held, 2)
    assert not held.holds_off(EVE, "ann")
    fail(held, 1)
    assert held.holds_off(EVE, "ann")


def test_the_time_grows_up_to_the_longest() -> None:
    clock = Clock()
    held = Throttle(3, clock)
    fail(held, 2)
    for seconds in (1, 2, 4, 8, 16, 32, LONGEST, LONGEST, LONGEST):
        fail(held, 1)
        clock.now += seconds - 0.01
        assert held.holds_off(EVE, "ann")
        clock.now += 0.01
        assert not held.holds_off(EVE, "ann")


def test_a_minute_without_failures_makes_good() -> None:
    clock = Clock()
    held = Throttle(3, clock)
    fail(held, 3)
    clock.now += 1 + 60
    fail(held, 2)
    assert not held.holds_off(EVE, "ann")
    fail(held, 1)
    clock.now += 1
    # As if nothing had been: a second.
    assert not held.holds_off(EVE, "ann")


def test_slow_failures_are_nothing() -> None:
    clock = Clock()
    held = Throttle(10, clock)
    for _ in range(100):
        fail(held, 1)
        clock.now += 6.1
        assert not held.holds_off(EVE, "ann")


def test_an_address_is_held_off_whoever_it_says_it_is() -> None:
    held = Throttle(3, Clock())
    for name in ("a", "b", "c"):
        held.failed(EVE, name)
    assert held.holds_off(EVE, "d") and held.holds_off(EVE, None)
    assert not held.holds_off(HOME, "a")


def test_a_user_is_held_off_wherever_he_says_he_is() -> None:
    held = Throttle(3, Clock())
    for number in range(3):
        held.failed(afar(f"203.0.113.{number}"), "ann")
    assert held.holds_off(afar("203.0.113.99"), "ann")
    assert not held.holds_off(afar("203.0.113.99"), "bob")


def test_nobody_is_locked_out_at_home_by_others() -> None:
    held = Throttle(3, Clock())
    held.succeeded(HOME, "ann")
    for number in range(100):
        held.failed(afar(f"203.0.113.{number}"), "ann")
    assert not held.holds_off(HOME, "ann")
    # There his own failures count.
    fail(held, 3, HOME)
    assert held.holds_off(HOME, "ann")


def test_success_is_no_pardon_for_the_address() -> None:
    held = Throttle(3, Clock())
    for _ in range(3):
        held.failed(EVE, "ann")
        held.succeeded(EVE, "eve")
    assert held.holds_off(EVE, "eve")


def test_on_this_machine_users_are_held_off_and_addresses_are_not() -> None:
    held = Throttle(3, Clock())
    fail(held, 3, HERE, "ann")
    assert held.holds_off(HERE, "ann")
    assert not held.holds_off(HERE, "bob")


def test_a_network_of_ipv6_is_one_client() -> None:
    held = Throttle(3, Clock())
    for number in range(3):
        held.failed(afar(f"2001:db8::{number}"), f"user {number}")
    assert held.holds_off(afar("2001:db8::ffff"), "x")
    assert not held.holds_off(afar("2001:db8:0:1::1"), "x")


def test_it_can_be_switched_off() -> None:
    held = Throttle(0, Clock())
    fail(held, 1000)
    assert not held.holds_off(EVE, "ann")


def test_what_is_remembered_is_bounded() -> None:
    held = Throttle(3, Clock())
    most = throttle.MOST
    for number in range(most + 100):
        held.failed(HERE, f"user {number}")
        held.succeeded(HERE, f"user {number}")
    assert len(held._failures) <= most and len(held._at_home) <= most
    fail(held, 3 * (most + 100), HERE, "ann")
    assert len(held._held) <= most


def test_invented_names_do_not_make_it_forget_a_real_one() -> None:
    """Behind a proxy on this machine an address says nothing; the user is all there is."""
    held = Throttle(3, Clock())
    fail(held, 3, HERE, "ann")
    for number in range(throttle.MOST + 100):
        held.failed(HERE, f"nobody {number}")
    assert held.holds_off(HERE, "ann")


def test_one_user_who_comes_from_everywhere_costs_nobody_his_home() -> None:
    held = Throttle(3, Clock())
    held.succeeded(HOME, "ann")
    for number in range(throttle.MOST + 100):
        held.succeeded(afar(f"2001:db8::{number:x}"), "eve")
    for number in range(9):
        held.failed(afar(f"203.0.113.{number}"), "ann")
    assert not held.holds_off(HOME, "ann")


@given(
    st.lists(st.tuples(st.floats(0, 30), st.booleans()), max_size=200),
    st.integers(1, 20),
)
def test_nobody_tries_more_often_than_allowed(steps: list[tuple[float, bool]], limit: int) -> None:
    """However somebody spreads his attempts: in any minute there are few more than the limit."""
    clock = Clock()
    held = Throttle(limit, clock)
    tried: list[float] = []
    for wait, patient in steps:
        clock.now += wait if patient else 0.0
        if not held.holds_off(EVE, "ann"):
            held.failed(EVE, "ann")
            tried.append(clock.now)
    for first in tried:
        # What has leaked away in a minute, what was full at its beginning, and one each time that
        # somebody has been held off, for twice as long each time.
        assert sum(first <= at < first + 60 for at in tried) <= 2 * limit + 7
