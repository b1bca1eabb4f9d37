"""Rules against a model: the first that speaks of a right decides on it; patterns character by
character."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from ferrymq_broker.access.access import ConnectionAccess
from ferrymq_broker.access.grants import Grant
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.access.patterns import AddressPattern, node_of
from ferrymq_broker.access.rules import (
    ANONYMOUS,
    ANYBODY,
    CLAIM,
    GROUP,
    KEY,
    USER,
    BoundRules,
    Rule,
    Subject,
    bind_rules,
)
from ferrymq_broker.values.rights import ALL, RIGHTS, WIDTH, name_of

RESERVED = ("$", "dynamic.")


def fits(pattern: str, text: str) -> bool:
    """Whether a pattern without a user's name in it stands for a text: by trying everything."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(fits(pattern[1:], text[at:]) for at in range(len(text) + 1))
    return bool(text) and pattern[0] in ("?", text[0]) and fits(pattern[1:], text[1:])


def is_meant(pattern: str, user: str | None, address: str) -> bool:
    """The model of a pattern. A name is taken literally: its letters stand for themselves."""
    if address.startswith(RESERVED) and not pattern.startswith(RESERVED):
        return False
    # The node is as little as it can be, but has all colons of the first row save two.
    cut = re.match("(.+?)::(?!:)", address, re.DOTALL)
    if "::" not in pattern and cut is not None:
        address = cut[1]
    pieces = pattern.split("{user}")
    if len(pieces) == 1:
        return fits(pattern, address)
    if not user:
        return False
    # Letters of the name that mean something in a pattern are others here and there.
    hidden = {"*": "\1", "?": "\2"}
    name = "".join(hidden.get(letter, letter) for letter in user)
    text = "".join(hidden.get(letter, letter) for letter in address)
    return fits(name.join(pieces), text)


names = st.text(alphabet="ab*?.{:", min_size=1, max_size=4)
pieces = st.sampled_from(["a", "b", "*", "?", ".", "{user}", "::", "$", "dynamic.", "a.b"])
patterns = st.lists(pieces, min_size=1, max_size=5).map("".join)
addresses = st.one_of(
    st.text(alphabet="ab.*?:$", max_size=6),
    st.lists(st.sampled_from(["a", "b", ".", "::", "$", "dynamic."]), max_size=5).map("".join),
)


@given(patterns, st.none() | names, addresses)
def test_a_pattern_means_what_the_model_means(pattern: str, user: str | None, address: str) -> None:
    bound = AddressPattern(pattern).bind(user)
    found = bound is not None and bound.matches(address if bound.parted else node_of(address))
    assert found == is_meant(pattern, user, address)


@given(names, addresses)
def test_a_name_opens_no_door(name: str, address: str) -> None:
    bound = AddressPattern("{user}").bind(name)
    assert bound is not None
    expected = address == name and not address.startswith(RESERVED)
    assert bound.matches(address) == expected


def test_stars_take_no_longer_than_both_texts_are() -> None:
    """With backtracking at every star this would take until the end of time."""
    pattern = AddressPattern("*a" * 200 + "b")
    assert not pattern.matches("a" * 2000)


subjects = st.one_of(
    st.just(Subject(ANYBODY)),
    st.just(Subject(ANONYMOUS)),
    st.sampled_from(["ann", "bob"]).map(lambda name: Subject(USER, name)),
    st.sampled_from(["red", "blue"]).map(lambda name: Subject(GROUP, name)),
    st.tuples(st.sampled_from(["scp", "aud"]), st.sampled_from(["", "x", "y"])).map(
        lambda pair: Subject(CLAIM, *pair)
    ),
    st.just(Subject(KEY, "root")),
)
identities = st.builds(
    UserIdentity,
    st.sampled_from([None, "ann", "bob"]),
    st.frozensets(st.sampled_from(["red", "blue"])),
    st.dictionaries(st.sampled_from(["scp", "aud"]), st.frozensets(st.sampled_from("xy"))),
    st.sampled_from(["", "root"]),
)
simple = st.sampled_from(["a", "a*", "*", "{user}", "a.?", "$*", "a::*", "dynamic.*"])
places = st.sampled_from(["a", "a.b", "ann", "$x", "a::p", "dynamic.q", "b"])


@st.composite
def rules(draw: st.DrawFn) -> tuple[list[Subject], int, int, list[str]]:
    may = draw(st.integers(0, ALL))
    return (
        draw(st.lists(subjects, min_size=1, max_size=2)),
        may,
        draw(st.integers(0, ALL)) & ~may,
        draw(st.lists(simple, min_size=1, max_size=2)),
    )


def is_about(subject: Subject, identity: UserIdentity) -> bool:
    """The model of a subject."""
    return {
        ANYBODY: True,
        USER: identity.user == subject.name,
        GROUP: subject.name in identity.groups,
        CLAIM: any(
            not subject.value or subject.value in values
            for name, values in identity.claims.items()
            if name == subject.name
        ),
        ANONYMOUS: identity.user is None and not identity.key,
        KEY: identity.key == subject.name,
    }[subject.kind]


@given(st.lists(rules(), max_size=5), identities, places)
def test_the_first_rule_that_speaks_of_a_right_decides(
    said: list[tuple[list[Subject], int, int, list[str]]], identity: UserIdentity, address: str
) -> None:
    made = [
        Rule(who, may, may_not, [AddressPattern(text) for text in where])
        for who, may, may_not, where in said
    ]
    verdict = bind_rules(made, identity).judge(address)
    access = ConnectionAccess(identity, made)
    for bit in RIGHTS.values():
        expected: bool | None = None
        for who, may, may_not, where in said:
            if (may | may_not) & bit == 0:
                continue
            if not any(is_about(subject, identity) for subject in who):
                continue
            if any(is_meant(text, identity.user, address) for text in where):
                expected = bool(may & bit)
                break
        assert bool(verdict.given & bit) == (expected is True)
        assert bool(verdict.refused & bit) == (expected is False)
        # Asked twice: the second time it is remembered.
        assert [access.permits(bit, address) for _ in range(2)] == [expected is True] * 2


@given(st.lists(rules(), max_size=3), st.lists(rules(), max_size=3), identities, places)
def test_a_token_gives_what_no_rule_refuses(
    said: list[tuple[list[Subject], int, int, list[str]]],
    granted: list[tuple[list[Subject], int, int, list[str]]],
    identity: UserIdentity,
    address: str,
) -> None:
    def made(all: list[tuple[list[Subject], int, int, list[str]]]) -> list[Rule]:
        return [
            Rule(who, may, may_not, [AddressPattern(text) for text in where])
            for who, may, may_not, where in all
        ]

    access = ConnectionAccess(identity, made(said))
    before = access.rights(address)
    refused = bind_rules(made(said), identity).judge(address).refused
    bearer = UserIdentity("ann", expires=5.0)
    rules_of_token: BoundRules = bind_rules(made(granted), bearer)
    access.put_grant(Grant("a", bearer, rules_of_token))
    covered = address == "a" or address.startswith("a::")
    more = rules_of_token.judge(address).given if covered else 0
    assert access.rights(address) == before | (more & ~refused)
    assert [grant.scope for grant in access.expire_grants(5.0)] == ["a"]
    assert access.rights(address) == before


def test_every_right_has_a_name_and_a_bit() -> None:
    assert ALL == sum(RIGHTS.values()) == (1 << WIDTH) - 1
    assert [name_of(bit) for bit in RIGHTS.values()] == list(RIGHTS)
    assert name_of(RIGHTS["send"] | RIGHTS["browse"]) == "send or browse"
