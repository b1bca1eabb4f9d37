"""`ferrymq check-config --explain ADDRESS --as WHO`: what the broker would say, and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from ferrymq_broker.access.access import ConnectionAccess
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.config.access import AccessRule
from ferrymq_broker.config.apply.explain_access import explain_access, read_identity
from ferrymq_broker.config.apply.rules import make_rule
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.config.model import Config, Security
from ferrymq_broker.values.rights import RIGHTS
from tests.broker.config.checking import check

FILE = """\
[[queue]]
name = "orders"
dead-letter = "dead"

[[alias]]
name = "old"
to = "orders"

[[stream]]
name = "clicks"
partitions = 2

[security.users]
alice = "secret of alice"

[security.groups]
shipping = ["alice"]

[[rule]]
who = "group:shipping"
may = ["receive", "browse"]
where = "orders"

[[rule]]
who = "*"
may-not = "send"
where = "orders"

[[rule]]
who = "claim:scope=writer"
may = "*"
where = ["clicks::1", "inbox.{user}"]

[[virtual-host]]
name = "tenant"

[[virtual-host.rule]]
who = "anonymous"
may = "send"
where = "*"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "broker.toml"
    path.write_text(FILE, "utf-8")
    return path


def rights(path: Path, address: str, who: str, *more: str) -> dict[str, int | None]:
    """The rights that are given, with the lines that say so."""
    result = check(path, "--explain", address, "--as", who, "--json", *more)
    told = json.loads(result.output)["access"]["rights"]
    assert list(told) == list(RIGHTS)
    return {name: each["line"] for name, each in told.items() if each["given"]}


def test_for_people(path: Path) -> None:
    result = check(path, "--explain", "old", "--as", "user:alice")
    assert result.exit_code == 0
    assert result.output.splitlines()[-8:] == [
        "at 'orders' user:alice, who is in shipping:",
        "  may not send, says the rule on line 24",
        "  may     receive, says the rule on line 19",
        "  may     browse, says the rule on line 19",
        "  may not create, because no rule says so",
        "  may not delete, because no rule says so",
        "  may not manage, because no rule says so",
        "  may not dead-letter, because no rule says so",
    ]


def test_for_programs(path: Path) -> None:
    assert rights(path, "orders", "user:alice") == {"receive": 19, "browse": 19}
    assert rights(path, "orders", "group:shipping") == {"receive": 19, "browse": 19}
    assert rights(path, "orders", "user:bob") == {}
    writer = "claim:scope=writer"
    assert set(rights(path, "clicks::1", writer).values()) == {29}
    assert rights(path, "clicks::0", writer) == {}
    assert rights(path, "inbox.bob", writer) == {}
    assert len(rights(path, "inbox.bob", f"user:bob,{writer}")) == len(RIGHTS)
    assert rights(path, "x", "anonymous", "--virtual-host", "tenant") == {"send": 37}
    assert rights(path, "x", "user:alice", "--virtual-host", "tenant") == {}


@pytest.mark.parametrize(
    ("address", "note"),
    [
        ("dead", "the node gets dead letters"),
        ("inbox.ann", "needs create too"),
        ("$management", "every client may send requests there"),
        ("$fence/x", "transactions with this fence need send"),
        ("dynamic.x", "the connection that the node was made for"),
    ],
)
def test_what_is_to_be_known_beyond_the_rules(path: Path, address: str, note: str) -> None:
    assert note in check(path, "--explain", address, "--as", "user:alice").output


def test_where_there_are_no_rules(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text("", "utf-8")
    told = check(path, "--explain", "q", "--as", "anonymous").output
    assert told.endswith("there are no rules: every client may do everything\n")
    assert len(rights(path, "q", "anonymous")) == len(RIGHTS)


def test_rules_are_in_the_summary(path: Path) -> None:
    told = check(path).output
    for text in ("group:shipping", "may receive, browse", "may not send", "inbox.{user}"):
        assert text in told, told
    default, tenant = json.loads(check(path, "--json").output)["virtual-hosts"]
    assert [rule["line"] for rule in default["rules"]] == [19, 24, 29]
    assert tenant["rules"] == [
        {"line": 37, "who": ["anonymous"], "may": ["send"], "may-not": [], "where": ["*"]}
    ]


@pytest.mark.parametrize(
    ("who", "said"),
    [
        ("alice", "did you mean 'user:alice'?"),
        ("*", "name one client"),
        ("user:a,user:b", "an identity has only one user"),
        ("anonymous,group:x", "'anonymous' cannot be combined"),
    ],
)
def test_who_is_nobody(who: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("?", r"\?")):
        read_identity(who, Config())


def test_somebody_is_asked_about_somewhere(path: Path) -> None:
    result = check(path, "--as", "user:alice")
    assert result.exit_code == 2 and "needs --explain ADDRESS" in result.output


def test_the_page_shows_what_is_printed(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/broker/access.md").read_text("utf-8")
    path = tmp_path / "broker.toml"
    path.write_text(page.split("```toml\n")[1].split("```")[0], "utf-8")
    command, _, shown = page.split("```console\n$ ")[1].split("```")[0].partition("\n")
    arguments = command.split()
    assert arguments[:3] == ["ferrymq", "check-config", "broker.toml"]
    assert check(path, *arguments[3:]).output == shown


subjects = st.sampled_from(["*", "anonymous", "user:ann", "user:bob", "group:g", "key:k"])
named = st.lists(st.sampled_from(list(RIGHTS)), max_size=3)
places = st.sampled_from(["a", "a*", "*", "{user}", "a::p", "$*", "dynamic.*"])


@st.composite
def rules(draw: st.DrawFn) -> AccessRule:
    may = draw(named)
    may_not = [right for right in draw(named) if right not in may]
    return AccessRule(
        who=draw(st.lists(subjects, min_size=1, max_size=2)),
        may=may if may or may_not else ["send"],
        may_not=may_not,
        where=[*draw(st.lists(places, min_size=1, max_size=2)), "never"],
    )


@given(
    st.lists(rules(), min_size=1, max_size=5),
    st.sampled_from(["a", "ann", "a::p", "a::q", "$x", "dynamic.y"]),
    st.sampled_from(["user:ann", "user:bob,group:g", "anonymous", "key:k"]),
)
def test_what_is_explained_is_what_the_broker_does(
    said: list[AccessRule], address: str, who: str
) -> None:
    config = Config(rule=said, security=Security(users={"ann": SecretStr("secret")}))
    identity: UserIdentity = read_identity(who, config)
    access = ConnectionAccess(identity, [make_rule(rule) for rule in said])
    for verdict in explain_access(config, address, identity).verdicts:
        assert verdict.given == access.permits(RIGHTS[verdict.right], address)
        if verdict.location:
            rule = said[int(verdict.location[1])]
            assert verdict.right in (rule.may if verdict.given else rule.may_not)


def test_rules_of_the_file_come_after_those_of_the_configuration(tmp_path: Path) -> None:
    path, rules = tmp_path / "broker.toml", tmp_path / "rules.toml"
    path.write_text(
        FILE.replace("[security.users]", '[security]\nrules-file = "rules.toml"\n[security.users]'),
        "utf-8",
    )
    # Without a file there are none.
    assert rights(path, "orders", "user:bob") == {}
    text = '[[rule]]\nname = "bob"\nwho = "user:bob"\nmay = ["send", "browse"]\nwhere = "orders"\n'
    rules.write_text(text, "utf-8")
    said = check(path, "--explain", "orders", "--as", "user:bob").output
    assert "may     browse, says the rule 'bob' in the file of rules" in said
    assert "may not send, says the rule on line" in said
    for wrong, reason in (
        (text.replace('name = "bob"', ""), "rules.toml:1: rule.name: Field required"),
        (text + text, "two rules have the name 'bob'"),
        (text.replace('"send"', '"fly"'), "rules.toml:4: rule.may: 'fly' is not a right"),
    ):
        rules.write_text(wrong, "utf-8")
        result = check(path)
        assert result.exit_code == 1 and reason in str(result.exception)
    rules.write_text(text, "utf-8")
    rules.chmod(0o666)
    assert "everybody may write to it" in str(check(path).exception)
