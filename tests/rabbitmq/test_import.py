"""``ferrymq import-definitions``: into files, and into a running broker."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from typer.testing import CliRunner

import ferrymq
from ferrymq import Message, rabbitmq
from ferrymq.engine.sasl import Plain
from ferrymq.errors import AuthenticationError
from ferrymq_broker.cli.app import make_app
from ferrymq_broker.config import Config
from ferrymq_broker.config.load import load_config
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.server import BrokerServer
from ferrymq_rabbitmq.definitions.document import parse_definitions
from ferrymq_rabbitmq.definitions.name_patterns import (
    NoPatternError,
    name_patterns,
    wildcard_text,
)
from ferrymq_rabbitmq.definitions.plan import make_plan
from tests.interop.brokers.rabbitmq import RabbitMQ, find_home

# What RabbitMQ 3.10.8 has exported; the passwords are guest and secret.
EXPORT = Path(__file__).with_name("definitions") / "rabbitmq-3.10.8.json"


def run(*words: str, status: int = 0) -> str:
    done = CliRunner().invoke(make_app(), ["import-definitions", *words])
    assert done.exit_code == status, done.output
    return done.output


def hashed(password: str, algorithm: str = "sha256") -> dict[str, str]:
    salt = b"\x01\x02\x03\x04"
    digest = hashlib.new(algorithm, salt + password.encode(), usedforsecurity=False).digest()
    return {
        "password_hash": base64.b64encode(salt + digest).decode(),
        "hashing_algorithm": f"rabbit_password_hashing_{algorithm}",
    }


def omitted(definitions: dict[str, Any]) -> list[tuple[str, str, str]]:
    plan = make_plan(parse_definitions(json.dumps(definitions)))
    return [(each.kind, each.name, each.reason) for each in plan.omitted]


async def test_files(tmp_path: Path) -> None:
    path, users = tmp_path / "ferrymq.toml", tmp_path / "users.json"
    said = run(str(EXPORT), "--config", str(path), "--users-file", str(users), "--json")
    report = json.loads(said)
    assert report["planned"]["queues"] == 4 and report["planned"]["users"] == 2
    assert [each["name"] for each in report["omitted"]] == ["max-queues", "guest"]
    assert "well-known password" in report["omitted"][1]["reason"]
    assert "secret" not in path.read_text() + users.read_text()
    config = load_config(path)
    listener = Config.model_validate({"listener": [{"url": "amqp://127.0.0.1:0"}]}).listener
    async with BrokerServer(config.model_copy(update={"listener": listener})) as server:
        url = f"amqp://127.0.0.1:{server.port}"
        orders = server.broker.default.nodes["orders"]
        assert isinstance(orders, Queue)
        # Its own argument, the policy, and the operator policy.
        assert orders.policy.message_ttl == 60_000
        assert (orders.policy.max_length, orders.policy.dead_letter) == (10, "/exchanges/dlx")
        # The old passwords are valid, with the old permissions.
        with pytest.raises(AuthenticationError):
            await ferrymq.connect(url, sasl=Plain("app", "wrong"))
        async with (
            ferrymq.connect(url, sasl=Plain("guest", "guest")) as connection,
            rabbitmq.management(connection) as management,
        ):
            info = await management.declare_queue("orders", arguments={"x-message-ttl": 60000})
            assert info.arguments == {"x-message-ttl": 60000}
            (binding,) = await management.bindings("amq.headers", queue="orders")
            assert binding.arguments == {"x-match": "any", "a": 1}
        async with ferrymq.connect(
            url, sasl=Plain("app", "secret"), hostname="vhost:shop"
        ) as connection:
            sender = await connection.sender(rabbitmq.exchange_address("sales", "eu.fr"))
            await sender.send(Message(body=b"x"))
            async with connection.receiver(rabbitmq.queue_address("app-in")) as receiver:
                await (await receiver.receive(timeout=10)).accept()
            # The topic permission allows keys that begin with eu.
            with pytest.raises(ferrymq.LinkDetached, match="unauthorized-access"):
                await connection.sender(rabbitmq.exchange_address("sales", "us.ny"))
            async with rabbitmq.management(connection) as management:
                await management.declare_queue("app-more")
                with pytest.raises(rabbitmq.AccessRefused):
                    await management.declare_queue("other")


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.skipif(find_home() is None, reason="RabbitMQ is not installed")
async def test_what_a_real_broker_exports(tmp_path: Path) -> None:
    """RabbitMQ takes the definitions, exports them, and they come out of the broker the same."""
    given = json.loads(EXPORT.read_bytes())
    broker = RabbitMQ(given)
    try:
        await asyncio.to_thread(broker.open)
        exported = json.loads(broker.export_definitions())
    finally:
        broker.close()
    config = Config.model_validate(
        {
            "listener": [{"url": "any://127.0.0.1:0"}],
            "personality": {"name": "rabbitmq"},
            "virtual-host": [{"name": "shop"}],
        }
    )
    async with BrokerServer(config) as server, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{server.port}/api/definitions"
        async with session.post(url, data=json.dumps(exported)) as response:
            assert (await response.json())["imported"]["queues"] == 4
        async with session.get(url) as response:
            told = await response.json()
    for kind in ("queues", "exchanges", "bindings"):
        assert _plain(told[kind]) == _plain(exported[kind])


def _plain(entries: list[dict[str, Any]]) -> list[str]:
    """Entries as texts, in an order, without what only one of the two brokers tells."""
    kept = [
        {key: value for key, value in entry.items() if key not in ("internal", "type")}
        for entry in entries
    ]
    return sorted(json.dumps(entry, sort_keys=True) for entry in kept)


def test_nothing_is_changed_without_need(tmp_path: Path) -> None:
    path, users = tmp_path / "ferrymq.toml", tmp_path / "users.json"
    files = ("--config", str(path), "--users-file", str(users))
    assert "4 queues" in run(str(EXPORT), *files, "--dry-run")
    assert list(tmp_path.iterdir()) == []
    run(str(EXPORT), *files)
    before = users.read_text()
    said = run(str(EXPORT), "--users-file", str(users))
    assert "user 'app': " in said and "already, who stays" in said
    assert users.read_text() == before
    assert make_app() and path.exists()
    run(str(EXPORT), *files, status=1)
    run(str(EXPORT), status=1)


async def test_a_running_broker() -> None:
    config = Config.model_validate(
        {
            "listener": [{"url": "amqp://127.0.0.1:0"}],
            "personality": {"name": "rabbitmq"},
            "queue": [{"name": "st"}],
        }
    )
    async with BrokerServer(config) as server:
        url = f"amqp://guest:guest@127.0.0.1:{server.port}"
        said = await asyncio.to_thread(run, str(EXPORT), "--broker", url, "--json")
        report = json.loads(said)
        assert report["declared"] == {"queues": 2, "exchanges": 1, "bindings": 2, "policies": 2}
        kinds = [(each["kind"], each["name"]) for each in report["omitted"]]
        assert ("virtual host", "shop") in kinds and ("queue", "st") in kinds
        assert ("user", "app") in kinds
        async with (
            ferrymq.connect(url) as connection,
            rabbitmq.management(connection) as management,
        ):
            # A client of the old broker declares it as before.
            await management.declare_queue("orders", arguments={"x-message-ttl": 60000})
            with pytest.raises(rabbitmq.BadRequest, match="no JSON"):
                await management.request("POST", "/definitions", "{")


@pytest.mark.parametrize("algorithm", ["sha256", "sha512", "md5"])
def test_hashes_of_passwords(tmp_path: Path, algorithm: str) -> None:
    from ferrymq_broker.security.hashing import verify
    from ferrymq_broker.security.users_file import read_users

    export, users = tmp_path / "export.json", tmp_path / "users.json"
    user = {"name": "alice", "tags": "administrator,mine", **hashed("sésame", algorithm)}
    export.write_text(json.dumps({"users": [user]}))
    run(str(export), "--users-file", str(users))
    alice = read_users(users)["alice"]
    assert alice.groups == {"administrator", "mine"}
    assert verify(alice.password, "sésame") and not verify(alice.password, "sesame")
    # No fast hash is in the file.
    assert user["password_hash"] not in users.read_text()


def test_what_has_no_equal_is_reported() -> None:
    found = omitted(
        {
            "rabbit_version": "4.0.0",
            "vhosts": [
                {"name": "/", "metadata": {"default_queue_type": "quorum"}},
                {"name": "default", "tracing": True},
            ],
            "users": [
                {"name": "x509", "password_hash": "", "tags": []},
                {"name": "old", **hashed("x"), "hashing_algorithm": "other", "tags": []},
            ],
            "permissions": [
                {"user": "old", "vhost": "/", "configure": "[ab]", "write": "", "read": ".*"}
            ],
            "parameters": [
                {"component": "shovel", "name": "s", "vhost": "/", "value": {}},
                {"component": "federation-upstream", "name": "f", "vhost": "/", "value": {}},
            ],
            "global_parameters": [{"name": "mqtt", "value": 1}],
            "policies": [
                {
                    "name": "p",
                    "vhost": "/",
                    "pattern": ".*",
                    "definition": {"federation-upstream": 1},
                },
                {"name": "bad", "vhost": "/", "pattern": "(", "definition": {}},
            ],
            "queues": [
                {"name": "amq.gen-1", "vhost": "/", "arguments": {}},
                {"name": "odd", "vhost": "/", "arguments": {"x-other": 1}},
                {"name": "kind", "vhost": "/", "arguments": {"x-queue-type": "new"}},
            ],
            "exchanges": [
                {"name": "late", "vhost": "/", "type": "x-delayed-message", "arguments": {}},
                {"name": "hash", "vhost": "/", "type": "x-consistent-hash", "arguments": {}},
                {
                    "name": "led",
                    "vhost": "/",
                    "type": "fanout",
                    "arguments": {"alternate-exchange": "missing"},
                },
            ],
            "bindings": [
                {
                    "source": "late",
                    "vhost": "/",
                    "destination": "odd",
                    "destination_type": "queue",
                    "routing_key": "",
                }
            ],
        }
    )
    for kind, name, reason in (
        ("virtual host", "default", "is the name of the virtual host / here"),
        ("virtual host", "default", "there is no firehose tracer"),
        ("virtual host", "/", "default_queue_type"),
        ("user", "x509", "it has no password"),
        ("user", "old", "hashing_algorithm: 'other'"),
        ("permission", "old", "configure: '[ab]': patterns of access rules have no '['"),
        ("shovel", "s", "the broker has no shovel"),
        ("federation-upstream", "f", "the broker has no federation"),
        ("global parameter", "mqtt", "only plugins"),
        ("policy", "p", "federation-upstream: there is no such setting here"),
        ("policy", "bad", "pattern: '('"),
        ("queue", "amq.gen-1", "cannot have this name"),
        ("queue", "odd", "x-other = 1: there is no such argument here"),
        ("queue", "kind", "x-queue-type: 'new'"),
        ("exchange", "late", "x-opt-delivery-delay"),
        ("exchange", "hash", "type: 'x-consistent-hash'"),
        ("exchange", "led", "the alternate exchange 'missing' is not imported"),
        ("binding", "late -> odd ()", "the exchange 'late' is not imported"),
    ):
        same = [each[2] for each in found if each[:2] == (kind, name)]
        assert any(reason in each for each in same), (kind, name, same)


@pytest.mark.parametrize(
    ("expression", "patterns"),
    [
        (".*", ["*"]),
        ("", []),
        ("^$", []),
        ("^app$", ["app"]),
        ("^app-.*$", ["app-*"]),
        ("app", ["*app*"]),
        ("^(a|b)\\.c$", ["a.c", "b.c"]),
        ("^a.b$", ["a?b"]),
        ("^a.+", ["a?*"]),
        ("^a$|^b", ["a", "b*"]),
        ("^(?:ab?)$", ["a", "ab"]),
    ],
)
def test_expressions_and_patterns(expression: str, patterns: list[str]) -> None:
    assert [wildcard_text(each) for each in name_patterns(expression)] == patterns


@pytest.mark.parametrize(
    "expression", ["[ab]", "a*", "a{2}", "(?!a)", "\\d", "a^b", "(a", "a)", "(a)*"]
)
def test_expressions_without_patterns(expression: str) -> None:
    with pytest.raises(NoPatternError):
        name_patterns(expression)
