"""Rules and users as entities of the management node."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ferrymq
from ferrymq import ManagementClient
from ferrymq.engine.scram import SCRAM_MECHANISMS
from ferrymq.errors import ConnectionClosed, LinkDetached, ManagementError
from ferrymq_broker.cli.app import make_app
from ferrymq_broker.security.users_file import read_users, write_users
from tests.broker.live.reloading import ConfiguredBroker, broker
from tests.broker.security.logins import ALICE, BOB

FILES = """
[security]
users-file = "users.json"
rules-file = "rules.toml"
[security.users]
carol = "open"
[[rule]]
who = "user:alice"
may = "*"
where = ["*", "$*", "dynamic.*"]
[[virtual-host]]
name = "shop"
"""
OPEN = {"who": "user:bob", "may": ["send", "receive", "create"], "where": "*"}


@pytest.fixture
async def b(tmp_path: Path) -> AsyncIterator[ConfiguredBroker]:
    """A broker that alice manages."""
    write_users(tmp_path / "users.json", {"alice": ALICE, "bob": BOB})
    async with broker(tmp_path, FILES) as b:
        yield b


def managed(b: ConfiguredBroker) -> ManagementClient:
    return b.managed("alice", "s%C3%A9same")  # type: ignore[return-value]


async def refusal(management: ManagementClient, operation: str, *request: object) -> int:
    with pytest.raises(ManagementError) as caught:
        await management.request(operation, *request)  # type: ignore[arg-type]
    return caught.value.status


async def names(management: ManagementClient) -> list[object]:
    return [rule["name"] async for rule in management.query("rule", ["name"])]


async def test_a_rule_counts_at_once_and_survives(b: ConfiguredBroker, tmp_path: Path) -> None:
    async with managed(b) as management:
        made = await management.create("rule", "bob", OPEN)
        assert (made["position"], made["origin"], made["who"]) == (2, "management", ["user:bob"])
        # The same again does nothing; others are another rule.
        await management.create("rule", "bob", OPEN)
        assert await refusal(management, "CREATE", "rule", "bob", {**OPEN, "may": "send"}) == 409
        async with ferrymq.connect(b.url("bob", "open")) as bob:
            receiver = await bob.receiver("orders")
            no = {"who": "user:bob", "may-not": "receive", "where": "orders", "before": "bob"}
            await management.create("rule", "no", no)
            assert await names(management) == ["configuration/1", "no", "bob"]
            with pytest.raises(LinkDetached):
                await receiver.receive()
            await management.request("UPDATE", "rule", "no", {"before": ""})
            assert await names(management) == ["configuration/1", "bob", "no"]
            await bob.receiver("orders")
            await management.request("UPDATE", "rule", "bob", {"may": "browse"})
            with pytest.raises(LinkDetached):
                await bob.receiver("orders")
            await management.delete("rule", "bob")
            with pytest.raises(ConnectionClosed):
                await bob.wait_closed()
        await management.create("rule", "bob", OPEN)
    assert b.reload() == []
    async with broker(tmp_path, FILES) as again, managed(again) as management:
        assert await names(management) == ["configuration/1", "no", "bob"]
        async with ferrymq.connect(again.url("bob", "open")) as bob:
            await bob.sender("orders")


async def test_rules_that_cannot_be(b: ConfiguredBroker, tmp_path: Path) -> None:
    async with managed(b) as management:
        for status, operation, name, body in (
            (400, "CREATE", "x", {"who": "bob", "may": "send", "where": "*"}),
            (400, "CREATE", "x", {"who": "*", "may": "fly", "where": "*"}),
            (400, "CREATE", "x", {"who": "*", "where": "*"}),
            (400, "CREATE", "x", {**OPEN, "unknown": 1}),
            (400, "CREATE", "x", {**OPEN, "before": "missing"}),
            (400, "CREATE", "configuration/9", OPEN),
            (409, "UPDATE", "configuration/1", {"may": "send"}),
            (409, "DELETE", "configuration/1", None),
            (404, "DELETE", "missing", None),
        ):
            assert await refusal(management, operation, "rule", name, body) == status, (name, body)
    assert not (tmp_path / "rules.toml").exists()


async def test_nobody_locks_himself_out(tmp_path: Path) -> None:
    write_users(tmp_path / "users.json", {"alice": ALICE, "bob": BOB})
    text = FILES.replace(FILES[FILES.index("[[rule]]") : FILES.index("[[virtual")], "")
    everything = {"who": "user:alice", "may": "*", "where": ["*", "$*", "dynamic.*"]}
    async with broker(tmp_path, text) as b, managed(b) as management:
        assert await refusal(management, "CREATE", "rule", "bob", OPEN) == 409
        async with b.managed("alice", "s%C3%A9same", "vhost:shop") as shop:
            # It would close the virtual host from which the broker is managed.
            assert await refusal(shop, "CREATE", "rule", "all", everything) == 409
        await management.create("rule", "all", everything)
        await management.create("rule", "bob", OPEN)
        assert await refusal(management, "DELETE", "rule", "all") == 409
        no = {"who": "*", "may-not": "manage", "where": "$*", "before": "all"}
        assert await refusal(management, "CREATE", "rule", "no", no) == 409
        await management.delete("rule", "bob")
        # Without any rule everybody could do everything.
        assert await refusal(management, "DELETE", "rule", "all") == 409
        assert await names(management) == ["all"]


async def test_rules_of_a_tenant(b: ConfiguredBroker) -> None:
    there = {"virtual-host": "shop"}
    alice = {"who": "user:alice", "may": "manage", "where": "$management"}
    async with managed(b) as management:
        await management.create("rule", "manager", {**alice, **there})
        assert await names(management) == ["configuration/1"]
        assert await refusal(management, "DELETE", "rule", "manager") == 404
        nowhere = {**alice, "virtual-host": "y"}
        assert await refusal(management, "CREATE", "rule", "x", nowhere) == 404
        async with b.managed("alice", "s%C3%A9same", "vhost:shop") as shop:
            assert await names(shop) == ["manager"]
            elsewhere = {**alice, "virtual-host": "default"}
            assert await refusal(shop, "CREATE", "rule", "x", elsewhere) == 403
            assert await refusal(shop, "DELETE", "rule", "manager") == 409
        await management.request("DELETE", "rule", "manager", there)


async def test_without_files_nothing_is_changed(tmp_path: Path) -> None:
    async with broker(tmp_path) as b, b.managed() as management:
        for type, body in (("rule", {**OPEN, "who": "*"}), ("user", {"password": "x"})):
            with pytest.raises(ManagementError, match=f"{type}s-file") as caught:
                await management.create(type, "new", body)
            assert caught.value.status == 409


async def test_users(b: ConfiguredBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "users.json"
    async with managed(b) as management:
        made = await management.create("user", "dave", {"password": "new", "groups": ["staff"]})
        assert made == {
            "name": "dave",
            "groups": ["staff"],
            "mechanisms": [*SCRAM_MECHANISMS, "PLAIN"],
            "origin": "file",
            "identity": "dave",
            "type": "org.ferrymq.user",
        }
        rule = {"who": "group:staff", "may": ["send", "create"], "where": "*"}
        await management.create("rule", "staff", rule)
        async with ferrymq.connect(b.url("dave", "new")) as dave:
            await dave.sender("orders")
            await management.request("UPDATE", "user", "dave", {"groups": "staff,other"})
            with pytest.raises(ConnectionClosed):
                await dave.wait_closed()
        async with ferrymq.connect(b.url("dave", "new")) as dave:
            await management.request("UPDATE", "user", "dave", {"password": "newer"})
            with pytest.raises(ConnectionClosed):
                await dave.wait_closed()
        async with ferrymq.connect(b.url("dave", "newer")):
            pass
        assert read_users(path)["dave"].groups == {"staff", "other"}
        for status, operation, name, body in (
            (409, "CREATE", "dave", {"password": "x"}),
            (400, "CREATE", "eve", {}),
            (400, "CREATE", "eve", {"password": ""}),
            (400, "CREATE", "eve", {"password": 5}),
            (400, "CREATE", "e\u00adve", {"password": "x"}),
            (400, "UPDATE", "dave", {}),
            (400, "UPDATE", "dave", {"hash": "x"}),
            (409, "UPDATE", "carol", {"password": "x"}),
            (409, "DELETE", "carol", None),
            (404, "DELETE", "eve", None),
        ):
            assert await refusal(management, operation, "user", name, body) == status, (name, body)
        # Two at the same time: one file.
        both = [management.create("user", name, {"password": "x"}) for name in ("f", "g")]
        await asyncio.gather(*both)
        shown = [user async for user in management.query("user")]
        assert [user["name"] for user in shown] == ["alice", "bob", "carol", "dave", "f", "g"]
        assert "argon2" not in json.dumps(shown)
        await management.delete("user", "dave")
        assert set(read_users(path)) == {"alice", "bob", "f", "g"}
    (change,) = (
        each for each in caplog.messages if "CREATE" in each and "'dave'" in each and "201" in each
    )
    assert "'user': 'alice'" in change and "'type': 'user'" in change
    assert "newer" not in caplog.text


async def test_who_may_not_manage_sees_neither(b: ConfiguredBroker) -> None:
    async with managed(b) as management:
        await management.create("rule", "bob", {**OPEN, "where": ["*", "dynamic.*"]})
        async with b.managed("bob", "open") as bob:
            for type, name in (("user", "alice"), ("rule", "bob")):
                assert await refusal(bob, "READ", type, name) == 403
                assert await refusal(bob, "DELETE", type, name) == 403
                assert [each async for each in bob.query(type)] == []
        assert await names(management) == ["configuration/1", "bob"]


async def test_the_commands(b: ConfiguredBroker) -> None:
    def run(*words: str, password: str = "") -> str:
        url = b.url("alice", "s%C3%A9same")
        result = CliRunner().invoke(make_app(), ["admin", *words, "--url", url], input=password)
        assert result.exit_code == 0, result.exception
        return result.stdout

    # The password comes from standard input, so that it is not in the list of processes.
    await asyncio.to_thread(run, "create", "user", "dave", "groups=staff", password="secret\n")
    said = await asyncio.to_thread(
        run, "create", "rule", "staff", "who=group:staff", "may=send,create", "where=orders"
    )
    assert said == "rule staff exists\n"
    async with ferrymq.connect(b.url("dave", "secret")) as dave:
        await dave.sender("orders")
    said = await asyncio.to_thread(run, "list", "rules")
    assert "send, create" in said and "configuration/1" in said
    assert "staff" in await asyncio.to_thread(run, "list", "users")
