"""The configuration that is read again: what changes, what needs a restart, what is refused."""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ferrymq
from ferrymq import rabbitmq
from ferrymq.errors import ConnectionClosed, LinkDetached, ManagementError
from ferrymq_broker.cli.app import make_app
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.queues.queue import Queue
from tests.broker.live.reloading import LISTENER, broker
from tests.broker.test_process import port_in, serve

NODES = """
[policies.short]
max-length = 5

[[queue]]
name = "orders"
policy = "short"

[[queue]]
name = "old"

[[queue]]
pattern = "work.*"
dead-letter = "dead"

[[exchange]]
name = "sales"

[[exchange.binding]]
to = "orders"
key = "eu"

[[alias]]
name = "in"
to = "orders"
"""
OTHER = """
[policies.short]
max-length = 7

[[queue]]
name = "orders"
policy = "short"

[[queue]]
name = "new"

[[queue]]
pattern = "work.*"
message-ttl = "1s"

[[exchange]]
name = "sales"

[[exchange.binding]]
to = "new"
key = "us"

[[alias]]
name = "in"
to = "new"

[[alias]]
name = "out"
to = "orders"
"""


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    """The level of the log, which the broker may change."""
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


async def test_nodes_policies_patterns_bindings_and_aliases(tmp_path: Path) -> None:
    async with broker(tmp_path, NODES) as b:
        space = b.server.broker.default
        space.resolve("work.1")
        assert space.dead_letter_index.has("dead")
        found = {setting: (before, after) for setting, before, after, _ in b.reload(OTHER)}
        assert found == {
            "policies.short.max-length": (5, 7),
            "queue[old]": ({"name": "old"}, None),
            "queue[new]": (None, {"name": "new"}),
            "queue[work.*].message-ttl": (0, 1000),
            "queue[work.*].dead-letter": ("dead", ""),
            "exchange[sales].binding[1]": (
                {"to": "orders", "key": "eu"},
                {"to": "new", "key": "us"},
            ),
            "alias[in].to": ("orders", "new"),
            "alias[out]": (None, {"name": "out", "to": "orders"}),
        }
        orders, old, made = (space.nodes[name] for name in ("orders", "old", "work.1"))
        assert isinstance(orders, Queue) and orders.policy.max_length == 7
        assert isinstance(made, Queue) and made.policy.message_ttl == 1000
        assert not space.dead_letter_index.has("dead")
        # Messages are not lost: the node stays, as one that is not declared.
        assert (old.declared, space.nodes["new"].declared) == (False, True)
        assert space.canonical("in") == "new" and space.canonical("out") == "orders"
        assert b.reload() == []
        # And back.
        b.reload(NODES)
        assert orders.policy.max_length == 5 and old.declared
        assert space.canonical("out") == "out"


async def test_what_management_has_changed_stays(tmp_path: Path) -> None:
    async with broker(tmp_path, NODES) as b:
        space = b.server.broker.default
        async with b.managed() as management:
            await management.request("UPDATE", "queue", "orders", {"max-length": 99})
            await management.delete("queue", "old")
            binding = {"exchange": "sales", "destination": "orders", "key": "eu"}
            await management.request("DELETE", "binding", None, binding)
            await management.request("UPDATE", "alias", "in", {"address": "elsewhere"})
        orders, sales = space.nodes["orders"], space.nodes["sales"]
        assert isinstance(orders, Queue) and isinstance(sales, Exchange)
        b.reload(NODES + "[[queue]]\nname = 'new'\n")
        # What is declared as before is not touched: a reload for a certificate undoes nothing.
        assert orders.policy.max_length == 99 and "old" not in space.nodes
        assert sales.bindings() == [] and space.canonical("in") == "elsewhere"
        assert "new" in space.nodes
        b.reload(NODES.replace("max-length = 5", "max-length = 6"))
        assert orders.policy.max_length == 6 and "old" not in space.nodes
        # A client that uses the name makes the node again, as it is declared.
        assert space.resolve("old")[0].declared


async def test_limits_and_what_needs_a_restart(tmp_path: Path) -> None:
    text = """
[limits]
connections = 7
max-message-size = 1000
[alarms]
memory = "1MiB"
[log]
level = "debug"
[http]
url = "http://127.0.0.1:0"
[[virtual-host]]
name = "shop"
"""
    async with broker(tmp_path) as b:
        found = b.reload(text)
        restart = [setting for setting, _, _, applied in found if not applied]
        assert restart == ["virtual-host[shop]", "http.url"]
        assert b.server.connection_limits.total == 7
        assert logging.getLogger().level == logging.DEBUG
        async with ferrymq.connect(b.url()) as connection:
            sender = await connection.sender("orders")
            assert sender.max_message_size == 1000
        # What needs a restart is said again, until there is one.
        assert [setting for setting, *_ in b.reload()] == restart


async def test_a_mistake_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with broker(tmp_path, NODES) as b:
        for text, line, reason in (
            ("[limits]\nlinks = 0\n[[queue]]\nname = 'new'\n", 5, "limits.links"),
            ("[[queue]]\nname = 'new'\n[[topic]]\nname = 'orders'\n", 7, "delete the node"),
            (
                "[security]\nusers-file = 'missing.json'\n[[queue]]\nname = 'new'\n",
                5,
                "No such file",
            ),
        ):
            with pytest.raises(ConfigError) as caught:
                b.reload(text)
            assert f"broker.toml:{line}: " in str(caught.value) and reason in str(caught.value)
            assert "new" not in b.server.broker.default.nodes
        # By the signal, it is in the log.
        b.server.reload()
        assert "the settings stay as they were" in caplog.text
        async with b.managed() as management:
            with pytest.raises(ManagementError, match=r"missing\.json") as refused:
                await management.request("RELOAD", "broker", "broker")
            assert refused.value.status == 409


async def test_users_of_the_configuration(tmp_path: Path) -> None:
    text = """
[security.users]
alice = "one"
bob = "two"
[security.groups]
staff = ["bob"]
"""
    async with broker(tmp_path) as b:
        async with ferrymq.connect(b.url("somebody", "anything")) as believed:
            # A name that nobody has checked does not count any more.
            assert ("security.users.alice", None, "(secret)", True) in b.reload(text)
            with pytest.raises(ConnectionClosed):
                await believed.wait_closed()
        async with (
            ferrymq.connect(b.url("alice", "one")) as alice,
            ferrymq.connect(b.url("bob", "two")) as bob,
        ):
            (change,) = b.reload(text.replace('"one"', '"three"'))
            assert change == ("security.users.alice", "(secret)", "(secret)", True)
            with pytest.raises(ConnectionClosed):
                await alice.wait_closed()
            await bob.session()
            b.reload(text.replace('["bob"]', "[]").replace('"one"', '"three"'))
            with pytest.raises(ConnectionClosed):
                await bob.wait_closed()
        async with ferrymq.connect(b.url("alice", "three")):
            pass


async def test_rules_count_at_once_for_open_connections(tmp_path: Path) -> None:
    users = "[security.users]\nalice = 'one'\nbob = 'two'\n"

    def rule(who: str, may: str, where: str) -> str:
        return f"[[rule]]\nwho = 'user:{who}'\nmay = {may}\nwhere = '{where}'\n"

    both = users + rule("alice", "['send', 'receive', 'create']", "*") + rule("bob", "'send'", "*")
    async with (
        broker(tmp_path, both) as b,
        ferrymq.connect(b.url("alice", "one")) as alice,
        ferrymq.connect(b.url("bob", "two")) as bob,
    ):
        receiver = await alice.receiver("orders")
        sender = await alice.sender("orders")
        b.reload(users + rule("alice", "'send'", "orders"))
        with pytest.raises(LinkDetached, match="receive at 'orders'"):
            await receiver.receive()
        await sender.send("still allowed")
        with pytest.raises(LinkDetached):
            await alice.sender("other")
        # Who has no right any more could not connect either.
        with pytest.raises(ConnectionClosed):
            await bob.wait_closed()
        # Without rules everybody may do everything.
        assert len(b.reload(users)) == 1
        await alice.sender("other")


@pytest.mark.parametrize("virtual_host", [None, "shop"])
async def test_who_may_reload(tmp_path: Path, virtual_host: str | None) -> None:
    text = """
[security.users]
alice = "one"
[[virtual-host]]
name = "shop"
[[virtual-host.rule]]
who = "*"
may = "*"
where = ["*", "$*", "dynamic.*"]
[[rule]]
who = "*"
may = "create"
where = "dynamic.*"
"""
    async with broker(tmp_path, text) as b:
        host = None if virtual_host is None else f"vhost:{virtual_host}"
        async with b.managed("alice", "one", host) as management:
            with pytest.raises(ManagementError) as caught:
                await management.request("RELOAD", "broker", "broker")
            # A tenant manages its virtual host, not the broker.
            assert caught.value.status == (403 if virtual_host is None else 501)


def test_the_command_and_the_signal(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text(LISTENER + "[limits]\nlinks = 5\n", "utf-8")
    with serve("--config", str(path)) as (process, printed):
        url = f"amqp://127.0.0.1:{port_in(printed[0])}"

        def run(*words: str) -> str:
            result = CliRunner().invoke(make_app(), ["admin", *words, "--url", url])
            assert result.exit_code == 0, result.exception
            return result.stdout

        assert run("reload") == "nothing has changed\n"
        path.write_text(LISTENER + "[limits]\nlinks = 6\n[store]\npath = 'x'\n", "utf-8")
        said = run("reload")
        assert "limits.links" in said and "applied; for new connections" in said
        assert "needs a restart" in said
        assert json.loads(run("reload", "--json"))[0]["setting"] == "store.path"
        path.write_text(LISTENER + "[[queue]]\nname = 'orders'\n", "utf-8")
        os.kill(process.pid, signal.SIGHUP)
        assert process.stderr is not None
        assert any("queue[orders]" in line for line in process.stderr)
        assert "orders" in run("list", "queues")


async def test_policies_of_a_personality(tmp_path: Path) -> None:
    text = "[personality]\nname = 'rabbitmq'\n"
    policy = "[[personality.policy]]\nname = 'p'\npattern = 'o'\ndefinition = { max-length = 3 }\n"
    async with broker(tmp_path, text) as b:
        async with ferrymq.connect(b.url()) as connection, rabbitmq.management(connection) as node:
            await node.declare_queue("orders")
        orders = b.server.broker.default.nodes["orders"]
        assert isinstance(orders, Queue)
        ((setting, _, _, applied),) = b.reload(text + policy)
        assert (setting, applied, orders.policy.max_length) == ("personality.policy", True, 3)
        ((setting, before, after, applied),) = b.reload(text + policy.replace("3", "4"))
        assert setting == "personality.policy[p].definition.max-length" and applied
        assert (before, after, orders.policy.max_length) == (3, 4, 4)
        with pytest.raises(ConfigError, match=r"toml:4: personality: policy"):
            b.reload(text + policy.replace("'o'", "'('"))
        b.reload(text)
        assert orders.policy.max_length == 0
        ((setting, _, _, applied),) = b.reload(text + "version = '4.0.0'\n")
        assert (setting, applied) == ("personality.version", False)


async def test_entities_of_a_personality_stay_declared(tmp_path: Path) -> None:
    text = "[personality]\nname = 'azure'\n[[personality.queue]]\nname = 'orders'\n"
    async with broker(tmp_path, text) as b:
        orders = b.server.broker.default.nodes["orders"]
        b.reload(text + "[[queue]]\nname = 'plain'\n")
        assert orders.declared and "plain" in b.server.broker.default.nodes
        ((setting, _, _, applied),) = b.reload(
            text + "max-delivery-count = 3\n[[queue]]\nname = 'plain'\n"
        )
        assert setting.startswith("personality.queue[orders]") and not applied
