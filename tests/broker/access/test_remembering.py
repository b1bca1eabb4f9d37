"""What is remembered of addresses: enough to be fast, and never too much."""

from __future__ import annotations

from ferrymq_broker.access.access import ConnectionAccess
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.access.patterns import AddressPattern
from ferrymq_broker.access.rules import ANYBODY, Rule, Subject
from ferrymq_broker.values.rights import ALL, RECEIVE, SEND


def access(may: int = SEND, where: str = "*") -> ConnectionAccess:
    return ConnectionAccess(
        UserIdentity("ann"), [Rule([Subject(ANYBODY)], may, 0, [AddressPattern(where)])]
    )


def test_an_answer_is_remembered() -> None:
    asked = access()
    assert asked.permits(SEND, "a") and not asked.permits(RECEIVE, "a")
    # Nobody asks the rules again.
    asked._rules.rules.clear()
    assert asked.permits(SEND, "a") and not asked.permits(SEND, "b")


def test_who_names_ever_new_addresses_fills_no_memory() -> None:
    asked = access()
    for number in range(5000):
        assert asked.permits(SEND, f"a{number}")
        assert len(asked._known) <= 1024
    assert asked.permits(SEND, "a0")


def test_long_addresses_are_asked_about_each_time() -> None:
    asked = access()
    assert asked.permits(SEND, "a" * 2000)
    assert not asked._known


def test_nobody_may_do_anything_at_an_endless_address() -> None:
    asked = access(ALL)
    assert not asked.permits(SEND, "a" * 2049)
    assert not asked._known


def test_without_rules_nothing_is_looked_up() -> None:
    asked = ConnectionAccess(UserIdentity(None), None)
    assert asked.open and asked.permits(ALL, "a" * 5000)
    assert not asked._known
