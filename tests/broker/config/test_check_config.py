"""`ferrymq check-config`: what a file declares, or all that is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.config.nodes import policy_attributes
from ferrymq_broker.values.policy import QueuePolicy
from tests.broker.config.checking import check
from tests.broker.test_process import run

FILE = """\
container-id = "harbour"

[nodes]
auto-create = false

[policies.bounded]
max-bytes = "10MiB"
message-ttl = "1h30m"

[[queue]]
name = "orders"
policy = "bounded"

[[queue]]
pattern = "jobs.[a]*"

[[topic]]
name = "prices"

[[exchange]]
name = "router"

[[exchange.binding]]
key = "eu"
to = "orders"

[[alias]]
name = "old"
to = "orders"

[[alias]]
name = "older"
to = "old"

[[alias]]
name = "gold"
to = "prices::gold"

[[redirect]]
name = "far"
host = "far.example"

[[virtual-host]]
name = "tenant"
hostnames = ["tenant.example"]

[virtual-host.nodes]
auto-create = true

[[virtual-host.queue]]
name = "inner"

[security.users]
alice = "secret of alice"

[http]
url = "http://127.0.0.1:9090"

[alarms]
memory = "1GiB"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file above."""
    path = tmp_path / "broker.toml"
    path.write_text(FILE, "utf-8")
    return path


def test_a_summary_for_people(path: Path) -> None:
    result = check(path)
    assert result.exit_code == 0
    for text in (
        "broker.toml: good",
        "listens on amqp://127.0.0.1:5672",
        "monitoring on http://127.0.0.1:9090",
        "memory alarm above 1GiB of messages",
        "max-bytes = 10MiB",
        "message-ttl = 1h30m",
        "jobs.[a]*",
        "'eu' goes to orders",
        "to prices::gold",
        "to far.example:5672",
        "virtual host tenant",
        "other names become nothing; at most 100000 nodes",
        "other names become queues, and topics for links that ask for one",
    ):
        assert text in result.output, result.output


def test_a_summary_for_programs(path: Path) -> None:
    result = check(path, "--json")
    assert result.exit_code == 0
    told = json.loads(result.output)
    assert told["valid"] is True and told["container-id"] == "harbour"
    assert told["users"] == ["alice"]
    assert told["alarms"]["memory"] == 2**30
    default, tenant = told["virtual-hosts"]
    orders, jobs, prices, router = default["nodes"]
    assert (orders["kind"], orders["name"], orders["line"]) == ("queue", "orders", 10)
    bounded = QueuePolicy(max_bytes=10 * 2**20, message_ttl=5_400_000)
    assert orders["settings"] == policy_attributes(bounded)
    assert jobs["pattern"] == "jobs.[a]*" and prices["kind"] == "topic"
    assert router["bindings"] == [{"key": "eu", "to": "orders", "arguments": {}}]
    assert default["aliases"] == {"old": "orders", "older": "old", "gold": "prices::gold"}
    assert default["redirects"] == {"far": "far.example:5672"}
    assert default["auto-create"] is False and tenant["auto-create"] is True
    assert [node["name"] for node in tenant["nodes"]] == ["inner"]


@pytest.mark.parametrize(
    ("address", "lines"),
    [
        (
            "orders",
            [
                "'orders' is a queue, declared on line 11",
                "  max-bytes = 10MiB",
                "  message-ttl = 1h30m",
            ],
        ),
        (
            "jobs.[a]7",
            [
                "'jobs.[a]7' is a queue, made by the pattern 'jobs.[a]*' of line 15",
                "  all settings have their defaults",
            ],
        ),
        (
            "older",
            [
                "'older' is an alias, declared on line 31",
                "'old' is an alias, declared on line 27",
                "'orders' is a queue, declared on line 11",
                "  max-bytes = 10MiB",
                "  message-ttl = 1h30m",
            ],
        ),
        (
            "gold",
            [
                "'gold' is an alias, declared on line 35",
                "'prices' is a topic, declared on line 18",
                "and 'gold' is a part of it",
                "  all settings have their defaults",
            ],
        ),
        ("far", ["'far' is in another container, at far.example:5672, far; declared on line 39"]),
        ("$management", ["'$management' is reserved for the broker's own services"]),
    ],
)
def test_what_an_address_is(path: Path, address: str, lines: list[str]) -> None:
    result = check(path, "--explain", address)
    assert result.exit_code == 0
    assert result.output.splitlines() == lines


@pytest.mark.parametrize("address", ["nothing", "dynamic.x", "", "orders::part", "x::y"])
def test_what_names_nothing_is_a_failure(path: Path, address: str) -> None:
    result = check(path, "--explain", address)
    assert result.exit_code == 1
    assert ": a link to it is refused" in result.output


def test_an_address_of_a_virtual_host(path: Path) -> None:
    result = check(path, "--explain", "inner", "--virtual-host", "Tenant.example")
    assert result.output.startswith("'inner' is a queue, declared on line 51")
    result = check(path, "--explain", "new", "--virtual-host", "tenant")
    assert "'new' is a queue, made when a link names it" in result.output
    assert "auto-create says on line 48" in result.output
    assert check(path, "--explain", "inner").exit_code == 1
    result = check(path, "--explain", "inner", "--virtual-host", "nobody")
    assert isinstance(result.exception, ConfigError)
    assert "there is no virtual host 'nobody'" in str(result.exception)


def test_an_address_for_programs(path: Path) -> None:
    result = check(path, "--explain", "gold", "--json")
    told = json.loads(result.output)
    settings = told.pop("settings")
    assert settings["max-subscriptions"] == 0
    assert told == {
        "address": "gold",
        "found": "declared",
        "kind": "topic",
        "node": "prices",
        "part": "gold",
        "pattern": None,
        "line": 18,
        "aliases": ["gold"],
        "redirect": None,
    }


def test_mistakes_are_told_all_at_once_and_without_a_traceback(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text("[limits]\ncredit = 0\n[security.users]\nalice = 5\n[log]\ncolour = 1\n")
    ended = run("check-config", str(path))
    assert ended.returncode == 1 and ended.stdout == ""
    first, second, third = ended.stderr.splitlines()
    assert first.startswith(f"ferrymq: {path}:2: limits.credit: ")
    assert second.startswith(f"{path}:4: security.users.alice: ")
    assert third == f"{path}:6: unknown key 'colour'"


def test_mistakes_for_programs(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text("[log]\nlevels = 'info'\n")
    result = check(path, "--json")
    assert result.exit_code == 1
    assert json.loads(result.output) == {
        "file": str(path),
        "valid": False,
        "problems": [{"line": 2, "reason": "unknown key 'levels'; did you mean 'level'?"}],
    }


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    ended = run("check-config", str(tmp_path / "missing.toml"))
    assert ended.returncode == 1
    assert "No such file" in ended.stderr and "Traceback" not in ended.stderr
