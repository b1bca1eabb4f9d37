"""Subscriptions and their rules are declared in the configuration."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from ferrymq_broker.cli.app import make_app
from ferrymq_broker.config import Config
from ferrymq_broker.config.errors import ConfigError
from tests.broker.harness import Network
from tests.broker.recovery.kit import stored_network
from tests.broker.topics.test_rules import add, asker_of, publish, received

NEWS = """
[[topic]]
name = "news"

[[subscription]]
topic = "news"
name = "s"
"""
RULES = """
[[subscription.rule]]
name = "one"
sql = "sys.subject = 'a'"
action = "SET by = 1"

[[subscription.rule]]
name = "two"
correlation = { subject = "b", properties = { n = 5 } }

[[subscription.rule]]
name = "three"
false = true
"""
TWO: dict[str, object] = {
    "name": "two",
    "correlation": {"subject": "b", "properties": {"n": 5}},
}


def config(text: str) -> Config:
    return Config.model_validate(tomllib.loads(text))


def rules(net: Network) -> object:
    return asker_of(net).ask("LIST-RULES", "subscription", "news::s").map()["rules"]


def test_a_declared_subscription_has_its_rules() -> None:
    net = stored_network()
    net.restart(config(NEWS + RULES))
    publish(net, "a", "b")
    publish(net, "b", n=5)
    assert rules(net) == [
        {"name": "one", "sql": "sys.subject = 'a'", "action": "SET by = 1"},
        TWO,
        {"name": "three", "false": True},
    ]
    assert received(net) == [("a", 1), ("b", None)]


def test_without_rules_it_gets_everything() -> None:
    net = stored_network()
    net.restart(config(NEWS))
    publish(net, "a")
    assert received(net) == [("a", None)]


def test_a_stored_subscription_follows_the_file_and_keeps_its_messages() -> None:
    net = stored_network()
    net.restart(config(NEWS + RULES))
    publish(net, "a")
    add(asker_of(net), "more", {"true": True})
    changed = RULES.replace("SET by = 1", "SET by = 2").replace("three", "four")
    net.restart(config(NEWS + changed))
    publish(net, "a")
    assert rules(net) == [
        TWO,
        {"name": "one", "sql": "sys.subject = 'a'", "action": "SET by = 2"},
        {"name": "four", "false": True},
    ]
    assert received(net) == [("a", 1), ("a", 2)]
    net.restart(config(NEWS))
    assert len(list(rules(net))) == 3  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[[subscription]]\ntopic = "t"\nname = "s"', "no topic with the name 't'"),
        (NEWS + NEWS.partition("\n\n")[2], "is declared twice"),
        (NEWS + RULES.replace("three", "one"), "the rule 'one' is declared twice"),
        (NEWS + RULES.replace("n = 5", "n = []"), "correlation"),
        (NEWS + RULES + "unknown = 1", "unknown"),
    ],
)
def test_what_does_not_fit(text: str, reason: str) -> None:
    with pytest.raises((ValidationError, ValueError), match=reason):
        config(text)


def test_mistakes_in_rules_are_found_before_the_start(tmp_path: Path) -> None:
    wrong = NEWS + RULES.replace("SET by = 1", "SET by").replace("false = true", 'sql = "a ="')
    with pytest.raises(ConfigError, match="line 1, column 7"):
        stored_network().restart(config(wrong))
    file = tmp_path / "ferrymq.toml"
    file.write_text(wrong)
    result = CliRunner().invoke(make_app(), ["check-config", str(file)])
    assert result.exit_code == 1
    said = str(result.exception)
    assert "the rule 'one': action, line 1, column 7" in said
    assert "the rule 'three': rule, line 1, column 4" in said
