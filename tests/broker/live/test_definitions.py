"""Definitions that are exported, served again, and imported."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ferrymq_broker.cli.app import make_app
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.config.load import load_config
from ferrymq_broker.security.users_file import write_users
from ferrymq_broker.server import BrokerServer
from tests.broker.live.reloading import ConfiguredBroker, broker
from tests.broker.security.logins import ALICE, BOB

TEXT = """
[security]
users-file = "users.json"
rules-file = "rules.toml"

[policies.short]
max-length = 5

[[queue]]
name = "orders"
policy = "short"
message-ttl = "90s"
lock-duration = "5s"

[[queue]]
pattern = "work.*"
auto-delete = "1h"

[[topic]]
name = "prices"
subscription = { max-length = 7, auto-delete = "1d" }

[[subscription]]
topic = "prices"
name = "audit"

[[subscription.rule]]
name = "euro"
sql = "currency = 'EUR'"
action = "SET seen = 1"

[[stream]]
name = "events"
partitions = 3

[[exchange]]
name = "sales"
routing = "headers"

[[exchange.binding]]
to = "orders"
arguments = { x-match = "all", colour = "réd 🚲" }

[[alias]]
name = "in"
to = "orders"

[[redirect]]
name = "elsewhere"
host = "other.example"

[[rule]]
name = "all"
who = "user:alice"
may = "*"
where = ["*", "$*", "dynamic.*"]

[[virtual-host]]
name = "shop"
hostnames = ["shop.example"]

[[virtual-host.queue]]
name = "baskets"

[[virtual-host.rule]]
who = "user:alice"
may = "*"
where = ["*", "$*", "dynamic.*"]
"""


def run(b: ConfiguredBroker, *words: str) -> tuple[str, str]:
    url = b.url("alice", "s%C3%A9same")
    result = CliRunner().invoke(make_app(), ["definitions", *words, "--url", url])
    assert result.exit_code == 0, result.exception
    return result.stdout, result.stderr


async def change(b: ConfiguredBroker) -> None:
    """Change what the file does not know."""
    async with b.managed("alice", "s%C3%A9same") as management:
        await management.create("queue", "made", {"max-bytes": "1MiB", "dead-letter": "orders"})
        await management.create("alias", "out", {"address": "made"})
        await management.create("user", "dave", {"password": "x", "groups": ["staff", "night"]})
        rule = {"who": "group:staff", "may": "send", "where": "made", "label": "a note"}
        await management.create("rule", "staff", rule)
        await management.create("subscription", "prices::own", {"selector": "a = 1"})
        await management.request("UPDATE", "queue", "orders", {"max-length": 6})


async def export(b: ConfiguredBroker, *words: str) -> tuple[str, str]:
    return await asyncio.to_thread(run, b, "export", *words)


async def test_an_export_can_be_served(tmp_path: Path) -> None:
    write_users(tmp_path / "users.json", {"alice": ALICE, "bob": BOB})
    async with broker(tmp_path, TEXT) as b:
        await change(b)
        text, told = await export(b)
        in_json, _ = await export(b, "--json")
        await export(b, str(tmp_path / "exported.toml"))
        with pytest.raises(AssertionError):
            # It would replace a file.
            await export(b, str(tmp_path / "exported.toml"))
    assert "user 'dave': passwords are not exported" in told
    assert "subscription 'prices::own': it has a selector" in told
    assert "argon2" not in text
    served = load_config(tmp_path / "exported.toml")
    (tmp_path / "exported.json").write_text(in_json, "utf-8")
    assert load_config(tmp_path / "exported.json") == served
    assert served.security.groups == {"night": ["dave"], "staff": ["alice", "dave"]}
    # A broker that is made of it exports the same.
    again = tmp_path / "again.toml"
    again.write_text(f"[[listener]]\nurl = 'amqp://127.0.0.1:0'\n{text}", "utf-8")
    async with BrokerServer(load_config(again)) as server:
        same, _ = await export(ConfiguredBroker(server, again))
    assert same == text


@pytest.mark.parametrize("name", ["exported.toml", "exported.json"])
async def test_an_export_can_be_imported(tmp_path: Path, name: str) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        write_users(folder / "users.json", {"alice": ALICE})
    file = str(tmp_path / name)
    async with broker(one, TEXT) as b:
        await change(b)
        await export(b, file)
        before, _ = await export(b, "--json")
    empty = TEXT[: TEXT.index("[policies")] + "[[virtual-host]]\nname = 'shop'\n"
    async with broker(other, empty) as b:
        said, told = await asyncio.to_thread(run, b, "import", file)
        assert "3 queue" in said and "3 rule" in said
        reasons = {line.split(": ")[2] for line in told.splitlines()}
        assert reasons == {
            "pattern of queues 'work.*'",
            "redirect 'elsewhere'",
            "user 'dave'",
            "user 'alice'",
        }
        # Again, nothing is different.
        assert await asyncio.to_thread(run, b, "import", file) == (said, told)
        after, _ = await export(b, "--json")
    missing = {"policies", "redirect", "security"}
    wanted, found = json.loads(before), json.loads(after)
    wanted["queue"] = [each for each in wanted["queue"] if "pattern" not in each]
    wanted["virtual-host"][0].pop("hostnames")
    for rule in wanted["virtual-host"][0]["rule"]:
        rule["name"] = "imported/1"
    for document in (wanted, found):
        for rule in (*document["rule"], *document["virtual-host"][0]["rule"]):
            for key in ("may-not", "label"):
                if not rule.get(key):
                    rule.pop(key, None)
    del found["security"]
    assert found == {key: value for key, value in wanted.items() if key not in missing}


async def test_an_import_of_users_with_passwords(tmp_path: Path) -> None:
    write_users(tmp_path / "users.json", {"alice": ALICE})
    text = "[security]\nusers-file = 'users.json'\n"
    file = tmp_path / "users.toml"
    file.write_text("[security.users]\nbob = 'one'\n[security.groups]\nstaff = ['bob']\n", "utf-8")
    async with broker(tmp_path, text) as b:
        said, told = await asyncio.to_thread(run, b, "import", str(file))
        assert (said, told) == ("applied: 1 user\n", "")
        async with b.managed("bob", "one") as management:
            assert (await management.read("user", "bob"))["groups"] == ["staff"]
        file.write_text("[[queue]]\nname = 5\n", "utf-8")
        with pytest.raises(AssertionError) as caught:
            await asyncio.to_thread(run, b, "import", str(file))
        assert "users.toml:2" in str(caught.value)


def test_a_configuration_in_json(tmp_path: Path) -> None:
    file = tmp_path / "broker.json"
    file.write_text('{"queue": [{"name": "orders", "message-ttl": "1s"}]}', "utf-8")
    assert load_config(file).queue[0].message_ttl == 1000
    for text, reason in (("{\n]", ":2: "), ("[]", "object"), ('{"queue": [{}]}', "queue")):
        file.write_text(text, "utf-8")
        with pytest.raises(ConfigError, match=reason):
            load_config(file)
