"""Rules in a file: what is wrong with one is told with its line and what was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferrymq_broker.config.access import read_subject
from ferrymq_broker.config.apply.rules import make_rule
from ferrymq_broker.values.rights import ALL, BROWSE, RECEIVE, SEND
from tests.broker.config.files import complaint, load


def rule(**keys: str) -> str:
    said = {"who": "'user:ann'", "may": "'send'", "where": "'a'"} | keys
    lines = [f"{key.replace('_', '-')} = {value}" for key, value in said.items() if value]
    return "\n".join(["[[rule]]", *lines])


MISTAKES = [
    ({"who": ""}, "1: rule.who: Field required"),
    ({"where": ""}, "1: rule.where: Field required"),
    ({"may": ""}, "1: rule: set may or may-not"),
    ({"may": "[]"}, "1: rule: set may or may-not"),
    ({"who": "[]"}, "2: rule.who: List should have at least 1 item"),
    ({"where": "[]"}, "4: rule.where: List should have at least 1 item"),
    ({"who": "3"}, "2: rule.who: Input should be a valid list"),
    ({"who": "'ann'"}, "2: rule.who: 'ann' names no client; did you mean 'user:ann'?"),
    ({"who": "'Anonymus'"}, "2: rule.who: 'Anonymus' names no client; did you mean 'anonymous'?"),
    ({"who": "'group'"}, "2: rule.who: 'group' needs a name; write group:NAME"),
    ({"who": "'grup:x'"}, "2: rule.who: 'grup:x' names no client; did you mean 'group:'?"),
    ({"who": "'User:x'"}, "2: rule.who: 'User:x' names no client; did you mean 'user:'?"),
    (
        {"who": "'role:x'"},
        "2: rule.who: 'role:x' names no client; there are user, group, claim, key",
    ),
    ({"who": "['*', 'user:']"}, "2: rule.who: 'user:' needs a name; write user:NAME"),
    ({"who": "'claim:=x'"}, "2: rule.who: 'claim:=x' needs a name; write claim:NAME"),
    ({"who": "'claim:scp='"}, "2: rule.who: 'claim:scp=' has no value; leave out the ="),
    ({"may": "'recieve'"}, "3: rule.may: 'recieve' is not a right; did you mean 'receive'?"),
    ({"may": "'read'"}, "3: rule.may: 'read' is not a right; did you mean 'receive'?"),
    ({"may": "'write'"}, "3: rule.may: 'write' is not a right; did you mean 'send'?"),
    ({"may": "'Send'"}, "3: rule.may: 'Send' is not a right; did you mean 'send'?"),
    (
        {"may": "'dead_letter'"},
        "3: rule.may: 'dead_letter' is not a right; did you mean 'dead-letter'?",
    ),
    (
        {"may": "'fly'"},
        "3: rule.may: 'fly' is not a right; there are send, receive, browse, create,",
    ),
    ({"may": "true"}, "3: rule.may: Input should be a valid list"),
    ({"may_not": "['browse', 'lurk']"}, "rule.may-not: 'lurk' is not a right"),
    (
        {"may": "'*'", "may_not": "'send'"},
        "1: rule: send in both may and may-not; for an exception",
    ),
    ({"where": "''"}, "4: rule.where: String should have at least 1 character"),
    ({"where": f"'{'a' * 1025}'"}, "4: rule.where: String should have at most 1024 characters"),
    (
        {"where": "'inbox.{username}'"},
        "4: rule.where: '{username}' is not a placeholder; use {user}",
    ),
    ({"where": "'a'\nwere = 'b'"}, "5: unknown key 'were'; did you mean 'where'?"),
    ({"may": "", "maynot": "'send'"}, "4: unknown key 'maynot'; did you mean 'may-not'?"),
    (
        {"who": "'anonymous'", "where": "'inbox.{user}'"},
        "1: rule: the rule matches no client: anonymous clients have no name for {user}",
    ),
]


@pytest.mark.parametrize(("keys", "said"), MISTAKES, ids=[said for _, said in MISTAKES])
def test_mistakes(tmp_path: Path, keys: dict[str, str], said: str) -> None:
    told = complaint(tmp_path, rule(**keys))
    assert said in told and told.startswith("ferrymq.toml:"), told


def test_a_rule_for_an_alias_would_never_be_asked(tmp_path: Path) -> None:
    text = "[[alias]]\nname = 'old'\nto = 'older'\n[[alias]]\nname = 'older'\nto = 'orders'\n"
    users = "\n[security.users]\nann = 'secret'\n"
    assert complaint(tmp_path, text + rule(where="['x', 'old', '*']") + users) == (
        "ferrymq.toml:10: rule.where: 'old' is an alias, and rules are about nodes; write 'orders'"
    )
    told = complaint(tmp_path, text + rule(where="'old::0'") + users)
    assert told.endswith("write 'orders::0'")


def test_it_is_the_same_in_a_virtual_host(tmp_path: Path) -> None:
    text = (
        "[[virtual-host]]\nname = 'v'\n[[virtual-host.rule]]\nwho = 'bob'\nmay = '*'\nwhere = '*'"
    )
    assert "4: virtual-host.rule.who: 'bob' names no client" in complaint(tmp_path, text)


def test_one_of_something_needs_no_brackets(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        rule(who="['user:ann', '*']", may="['receive', 'browse']", may_not="'send'", where="'a*'")
        + "\n"
        + rule(may="'*'")
        + "\n[security.users]\nann = 'secret'\n",
    )
    first, second = (make_rule(said) for said in config.rule)
    assert (first.may, first.may_not) == (RECEIVE | BROWSE, SEND)
    assert [pattern.text for pattern in first.where] == ["a*"]
    assert len(first.who) == 2 and second.may == ALL and second.may_not == 0


def test_names_are_taken_as_they_are() -> None:
    subject = read_subject("claim:http://example/role=a=b:c")
    assert (subject.name, subject.value) == ("http://example/role", "a=b:c")
    assert read_subject("group:cn=x,ou=y").name == "cn=x,ou=y"
    assert read_subject("user:a:b").name == "a:b"


NAMED = [
    {"who": "'user:ann'"},
    {"who": "['*', 'group:staff']"},
    {"who": "'claim:scope'"},
    {"who": "'*'", "where": "'inbox.{user}'"},
    # Who is refused something for having no name gives one.
    {"who": "'anonymous'", "may": "", "may_not": "'send'"},
]


@pytest.mark.parametrize("keys", NAMED, ids=repr)
def test_users_are_not_told_apart_where_every_name_is_believed(
    tmp_path: Path, keys: dict[str, str]
) -> None:
    key = "\n[[security.shared-access-key]]\nname = 'k'\nprimary = 'a long secret'\n"
    for more in ("", "\n[security]\nanonymous = true\n", key):
        told = complaint(tmp_path, rule(**keys) + more)
        assert told.startswith(
            "ferrymq.toml:1: rule: the rule tells users apart, but [security] names"
        )
        assert "users-file" in told and "any name" in told
    host = "[[virtual-host]]\nname = 'v'\n" + rule(**keys).replace("rule", "virtual-host.rule")
    assert complaint(tmp_path, host).startswith("ferrymq.toml:3: virtual-host.rule: the rule tells")
    assert load(tmp_path, rule(**keys) + "\n[security.users]\nann = 'secret'\n").rule


@pytest.mark.parametrize("who", ["'*'", "'anonymous'", "['key:k', '*']"])
def test_rules_for_everybody_need_no_users(tmp_path: Path, who: str) -> None:
    assert load(tmp_path, rule(who=who)).rule
    assert load(tmp_path, rule(who="'*'", may="", may_not="'send'")).rule
