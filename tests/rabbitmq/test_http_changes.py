"""Users, permissions and policies that are changed by RabbitMQ's API while the broker runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

import ferrymq
from ferrymq import rabbitmq
from ferrymq.engine import Plain
from ferrymq_broker.config import Config
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.security.users_file import read_users, write_users
from ferrymq_broker.server import BrokerServer
from tests.broker.security.logins import ALICE
from tests.rabbitmq.test_http_api import DEFINITIONS, Api, api, config

ADMIN = aiohttp.encode_basic_auth("alice", "sésame")


@pytest.fixture
def settings(tmp_path: Path) -> Config:
    """A broker with an administrator, and files for what is changed."""
    admin = type(ALICE)(ALICE.password, ALICE.scram, frozenset({"administrator"}))
    write_users(tmp_path / "users.json", {"alice": admin})
    return config(
        security={
            "users-file": str(tmp_path / "users.json"),
            "rules-file": str(tmp_path / "rules.toml"),
        },
        personality={"name": "rabbitmq", "policies-file": str(tmp_path / "policies.toml")},
    )


@asynccontextmanager
async def client_of(server: BrokerServer) -> AsyncIterator[Api]:
    client = Api(server.port, ADMIN)
    try:
        yield client
    finally:
        await client.close()


async def test_users(settings: Config, tmp_path: Path) -> None:
    async with api(settings, ADMIN) as admin:
        await admin.ask("PUT", "users/app", {"password": "one", "tags": "monitoring,x"}, 201)
        assert await admin.get("users/app") == {
            "name": "app",
            "tags": ["monitoring", "x"],
            "limits": {},
        }
        await _expect(admin, "app", "one", "app")
        await admin.ask("PUT", "users/app", {"password": "two", "tags": []}, 204)
        await _expect(admin, "app", "one", None)
        # Without a password only the tags change.
        await admin.ask("PUT", "users/app", {"tags": "y"}, 204)
        await _expect(admin, "app", "two", "app")
        assert (await admin.get("users/app"))["tags"] == ["y"]
        hashed = {
            "password_hash": "AQIDBMpHBHHqUPgGXHeA8c6jNAU6AOcVx0yLMm6wNMCF9WsS",
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": "",
        }
        await admin.ask("PUT", "users/hashed", hashed, 201)
        await admin.ask("PUT", "users/nobody", {"tags": ""}, 400)
        await admin.ask("PUT", "users/nobody", {"password_hash": "AQ==", "tags": ""}, 400)
        assert set(read_users(tmp_path / "users.json")) == {"alice", "app", "hashed"}
        # Nothing of a password goes out.
        told = json.dumps([await admin.get("users"), await admin.get("definitions")])
        assert "argon2" not in told and "AQIDBMpH" not in told
        await admin.ask("POST", "users/bulk-delete", {"users": ["hashed"]}, 204)
        await admin.ask("DELETE", "users/app", status=204)
        await admin.ask("DELETE", "users/app", status=404)
        await _expect(admin, "app", "two", None)


async def _expect(admin: Api, user: str, password: str, found: str | None) -> None:
    """Look who a user is for the broker: None if the login is refused."""
    client = Api(admin.port, aiohttp.encode_basic_auth(user, password))
    try:
        said = await client.get("whoami", 200 if found else 401)
        assert found is None or said["name"] == found
    finally:
        await client.close()


async def test_permissions(settings: Config) -> None:
    given = {"configure": "^app-", "write": "^app-.*", "read": ".*"}
    async with api(settings, ADMIN) as admin:
        await admin.ask("PUT", "queues/%2F/app-in", {}, 201)
        await admin.ask("PUT", "queues/shop/other", {}, 201)
        await admin.ask("PUT", "users/app", {"password": "one", "tags": ""}, 201)
        await admin.ask("PUT", "permissions/%2F/nobody", given, 400)
        refused = await admin.ask("PUT", "permissions/%2F/app", {**given, "read": "^(?=look)"}, 400)
        assert "read: " in refused["reason"]
        await admin.ask("PUT", "permissions/%2F/app", {"configure": ".*"}, 400)
        everything = dict.fromkeys(given, ".*")
        # The first permission closes the broker; an administrator can go on.
        await admin.ask("PUT", "permissions/shop/alice", everything, 201)
        await admin.ask("PUT", "permissions/%2F/app", given, 201)
        await admin.ask("PUT", "permissions/%2F/app", given, 204)
        assert await admin.get("permissions/%2F/app") == {"user": "app", "vhost": "/", **given}
        assert await admin.get("users/app/permissions") == [{"user": "app", "vhost": "/", **given}]
        app = Api(admin.port, aiohttp.encode_basic_auth("app", "one"))
        try:
            await app.ask("PUT", "queues/%2F/app-out", {}, 201)
            await app.ask("PUT", "queues/%2F/other", {}, 401)
            await app.get("queues/shop", 401)
            await app.ask("PUT", "permissions/%2F/app", everything, 401)
            await app.ask("PUT", "users/app", {"password": "x", "tags": "administrator"}, 401)
            await app.ask("PUT", "policies/%2F/p", {"pattern": "", "definition": {}}, 401)
            await admin.ask("DELETE", "permissions/%2F/app", status=204)
            await admin.ask("DELETE", "permissions/%2F/app", status=404)
            await app.ask("PUT", "queues/%2F/app-out", {}, 401)
        finally:
            await app.close()
    # They survive the broker.
    async with api(settings, ADMIN) as admin:
        assert [each["vhost"] for each in await admin.get("permissions")] == ["shop"]


async def test_who_would_lose_the_broker_is_told(settings: Config, tmp_path: Path) -> None:
    write_users(tmp_path / "users.json", {"alice": ALICE})
    given = {"configure": ".*", "write": ".*", "read": ".*"}
    async with api(settings, ADMIN) as client:
        refused = await client.ask("PUT", "permissions/%2F/alice", given, 400)
        assert "first make a rule that gives you manage" in refused["reason"]
        await client.ask("PUT", "queues/%2F/still-open", {}, 201)


async def test_policies_change_queues_that_exist(settings: Config) -> None:
    def lengths(server: BrokerServer) -> list[int]:
        nodes = [server.broker.default.nodes[name] for name in ("orders", "own")]
        return [node.policy.max_length for node in nodes if isinstance(node, Queue)]

    policy = {"pattern": "^o", "definition": {"max-length": 5}, "apply-to": "queues"}
    async with BrokerServer(settings) as server, client_of(server) as admin:
        await admin.ask("PUT", "queues/%2F/orders", {}, 201)
        await admin.ask("PUT", "queues/%2F/own", {"arguments": {"x-max-length": 3}}, 201)
        await admin.ask("PUT", "exchanges/%2F/out", {"type": "fanout"}, 201)
        await admin.ask("PUT", "policies/%2F/short", policy, 201)
        assert lengths(server) == [5, 3]
        told = await admin.get("queues/%2F/orders")
        assert (told["policy"], told["effective_policy_definition"]) == (
            "short",
            {"max-length": 5},
        )
        # A client may declare it again as before.
        await admin.ask("PUT", "queues/%2F/orders", {}, 204)
        policy["definition"] = {"max-length": 2}
        await admin.ask("PUT", "policies/%2F/short", policy, 204)
        assert lengths(server) == [2, 2]
        limit = {"pattern": ".*", "definition": {"max-length": 1}}
        await admin.ask("PUT", "operator-policies/%2F/limit", limit, 201)
        assert lengths(server)[0] == 1
        await admin.ask("DELETE", "operator-policies/%2F/limit", status=204)
        alternate = {
            "pattern": "out",
            "definition": {"alternate-exchange": "amq.fanout"},
            "apply-to": "exchanges",
        }
        await admin.ask("PUT", "policies/%2F/lost", alternate, 201)
        await admin.ask("PUT", "exchanges/%2F/out", {"type": "fanout"}, 204)
        for wrong in ({"pattern": "("}, {"apply-to": "x"}, {"definition": 1}):
            await admin.ask("PUT", "policies/%2F/bad", {**policy, **wrong}, 400)
        await admin.ask("DELETE", "policies/%2F/missing", status=404)
    async with BrokerServer(settings) as server, client_of(server) as admin:
        names = [each["name"] for each in await admin.get("policies/%2F")]
        assert names == ["lost", "short"]
        await admin.ask("PUT", "queues/%2F/orders", {}, 201)
        await admin.ask("PUT", "queues/%2F/own", {"arguments": {"x-max-length": 3}}, 201)
        assert lengths(server) == [2, 2]
        await admin.ask("DELETE", "policies/%2F/short", status=204)
        assert lengths(server) == [0, 3]


async def test_definitions_with_users_and_permissions(settings: Config) -> None:
    async with api(settings, ADMIN) as admin:
        report = await admin.ask("POST", "definitions", DEFINITIONS.read_bytes())
        assert report["imported"]["users"] == 2 and report["imported"]["permissions"] == 2
        told = await admin.get("definitions")
        assert {each["name"]: each["password_hash"] for each in told["users"]} == dict.fromkeys(
            ("alice", "app", "guest"), ""
        )
        permissions = {(each["user"], each["vhost"]): each for each in told["permissions"]}
        assert permissions["app", "shop"]["write"] == "^(app-.*|sales)$"
        assert told["parameters"][0]["component"] == "operator_policy"
        assert (await admin.get("definitions/shop"))["users"] == []
        # What came with a hash can log in, and is held to the permissions.
        url = f"amqp://127.0.0.1:{admin.port}"
        guest = ferrymq.connect(url, sasl=Plain("guest", "guest"))
        async with guest as connection, rabbitmq.management(connection) as node:
            await node.declare_queue("made")
        again = await admin.ask("POST", "definitions", json.dumps(told))
        assert again["imported"]["permissions"] == len(told["permissions"])
        assert again["imported"]["users"] == 0
