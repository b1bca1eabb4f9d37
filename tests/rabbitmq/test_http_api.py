"""RabbitMQ's API over HTTP, as its tools use it."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

import ferrymq
from ferrymq import Message, rabbitmq
from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer

GUEST = aiohttp.encode_basic_auth("guest", "guest")
DEFINITIONS = Path(__file__).with_name("definitions") / "rabbitmq-3.10.8.json"


def config(**more: object) -> Config:
    return Config.model_validate(
        {
            "listener": [{"url": "any://127.0.0.1:0"}],
            "personality": {"name": "rabbitmq"},
            "virtual-host": [{"name": "shop"}],
            **more,
        }
    )


class Api:
    """A client of the API."""

    def __init__(self, port: int, auth: str | None = GUEST) -> None:
        self.port = port
        headers = {} if auth is None else {"Authorization": auth}
        self._session = aiohttp.ClientSession(headers=headers)

    async def ask(self, verb: str, path: str, body: object = None, status: int = 200) -> Any:
        url = URL(f"http://127.0.0.1:{self.port}/api/{path}", encoded=True)
        data = body if body is None or isinstance(body, str | bytes) else json.dumps(body)
        async with self._session.request(verb, url, data=data) as response:
            text = await response.text()
            assert response.status == status, text
            return json.loads(text) if text else None

    async def get(self, path: str, status: int = 200) -> Any:
        return await self.ask("GET", path, status=status)

    async def close(self) -> None:
        await self._session.close()


@asynccontextmanager
async def api(settings: Config | None = None, auth: str | None = GUEST) -> AsyncIterator[Api]:
    async with BrokerServer(config() if settings is None else settings) as server:
        client = Api(server.port, auth)
        try:
            yield client
        finally:
            await client.close()


async def test_queues() -> None:
    async with api() as client:
        body = {"durable": "true", "auto_delete": "false", "arguments": {"x-max-length": 10}}
        await client.ask("PUT", "queues/%2F/my%20queue", body, 201)
        await client.ask("PUT", "queues/%2f/my%20queue", body, 204)
        refused = await client.ask(
            "PUT", "queues/%2F/my%20queue", {"arguments": {"x-max-length": 11}}, 400
        )
        assert refused["error"] == "bad_request" and "max-length" in refused["reason"]
        await client.ask("PUT", "queues/shop/other", {"arguments": {"x-queue-type": "quorum"}}, 201)
        queue = await client.get("queues/%2F/my%20queue")
        assert queue["arguments"] == {"x-max-length": 10}
        assert (queue["name"], queue["vhost"], queue["type"]) == ("my queue", "/", "classic")
        assert (queue["durable"], queue["auto_delete"], queue["exclusive"]) == (True, False, False)
        assert (queue["state"], queue["messages"], queue["consumers"]) == ("running", 0, 0)
        assert [each["name"] for each in await client.get("queues")] == ["my queue", "other"]
        assert [each["name"] for each in await client.get("queues/shop")] == ["other"]
        await client.get("queues/shop/missing", 404)
        await client.ask("DELETE", "queues/shop/missing", status=404)
        await client.ask("DELETE", "queues/shop/other", status=204)
        assert await client.get("queues/shop") == []


async def test_messages_through_the_api() -> None:
    async with api() as client:
        await client.ask("PUT", "queues/%2F/orders", {}, 201)
        message = {
            "routing_key": "orders",
            "payload": "a teapot",
            "payload_encoding": "string",
            "properties": {
                "delivery_mode": 2,
                "content_type": "text/plain",
                "headers": {"colour": "red", "x-stage": 1},
                "type": "order",
                "expiration": "60000",
            },
        }
        path = "exchanges/%2F/amq.default/publish"
        assert await client.ask("POST", path, message) == {"routed": True}
        assert await client.ask("POST", path, {**message, "routing_key": "nowhere"}) == {
            "routed": False
        }
        binary = {"routing_key": "orders", "payload": "/wD+", "payload_encoding": "base64"}
        assert await client.ask("POST", path, binary) == {"routed": True}
        get = {"count": 5, "ackmode": "ack_requeue_true", "encoding": "auto"}
        first, second = await client.ask("POST", "queues/%2F/orders/get", get)
        assert (first["payload"], first["payload_encoding"]) == ("a teapot", "string")
        assert (first["exchange"], first["routing_key"]) == ("", "orders")
        properties = first["properties"]
        assert (properties["delivery_mode"], properties["type"]) == (2, "order")
        assert properties["headers"] == {"colour": "red", "x-stage": 1}
        assert (second["payload"], second["payload_encoding"]) == ("/wD+", "base64")
        assert [first["message_count"], second["message_count"]] == [1, 0]
        queue = await client.get("queues/%2F/orders")
        assert (queue["messages_ready"], queue["message_stats"]["publish"]) == (2, 2)
        get = {"count": "1", "ackmode": "ack_requeue_false", "encoding": "base64", "truncate": 1}
        (taken,) = await client.ask("POST", "queues/%2F/orders/get", get)
        assert (taken["payload"], taken["payload_bytes"]) == ("YQ==", 8)
        await client.ask("DELETE", "queues/%2F/orders/contents", status=204)
        assert (await client.get("queues/%2F/orders"))["messages"] == 0


async def test_a_message_is_rejected_to_the_dead_letters() -> None:
    async with api() as client:
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        await client.ask("PUT", "queues/%2F/orders", {"arguments": arguments}, 201)
        await client.ask("PUT", "queues/%2F/dead", {}, 201)
        message = {"routing_key": "orders", "payload": "x", "payload_encoding": "string"}
        await client.ask("POST", "exchanges/%2F/amq.default/publish", message)
        get = {"count": 1, "ackmode": "reject_requeue_false", "encoding": "auto"}
        await client.ask("POST", "queues/%2F/orders/get", get)
        assert (await client.get("queues/%2F/orders"))["messages"] == 0
        assert (await client.get("queues/%2F/dead"))["messages"] == 1


async def test_exchanges_and_bindings() -> None:
    async with api() as client:
        await client.ask("PUT", "exchanges/%2F/sales", {"type": "topic"}, 201)
        await client.ask("PUT", "exchanges/%2F/sales", {"type": "topic"}, 204)
        await client.ask("PUT", "exchanges/%2F/amq.mine", {"type": "topic"}, 401)
        await client.ask("PUT", "queues/%2F/q", {}, 201)
        names = [each["name"] for each in await client.get("exchanges/%2F")]
        assert names[:2] == ["", "amq.direct"] and "sales" in names
        exchange = await client.get("exchanges/%2F/sales")
        assert (exchange["type"], exchange["internal"]) == ("topic", False)
        bindings = "bindings/%2F/e/sales/q/q"
        await client.ask("POST", bindings, {"routing_key": "eu.#"}, 201)
        await client.ask("POST", bindings, {"routing_key": "", "arguments": {}}, 201)
        await client.ask("POST", bindings, {"routing_key": "a", "arguments": {"b": 1}}, 201)
        found = {each["properties_key"]: each for each in await client.get(bindings)}
        assert {"~", "eu.%23"} < set(found) and len(found) == 3
        assert found["eu.%23"]["routing_key"] == "eu.#"
        (third,) = set(found) - {"~", "eu.%23"}
        assert found[third]["arguments"] == {"b": 1}
        assert (await client.get(f"{bindings}/{third}"))["routing_key"] == "a"
        await client.ask("DELETE", f"{bindings}/eu.%2523", status=204)
        await client.ask("DELETE", f"{bindings}/{third}", status=204)
        await client.ask("DELETE", f"{bindings}/missing", status=404)
        sources = [each["source"] for each in await client.get("queues/%2F/q/bindings")]
        assert sources == ["", "sales"]
        assert len(await client.get("exchanges/%2F/sales/bindings/source")) == 1
        await client.ask("DELETE", "exchanges/%2F/sales", status=204)
        await client.get("exchanges/%2F/sales", 404)


async def test_connections_channels_and_consumers() -> None:
    async with api() as client:
        url = f"amqp://guest:guest@127.0.0.1:{client.port}"
        await client.ask("PUT", "queues/%2F/orders", {}, 201)
        async with (
            ferrymq.connect(url, container_id="shop-1") as connection,
            connection.sender(rabbitmq.queue_address("orders")) as sender,
            connection.receiver(rabbitmq.queue_address("orders"), credit=1) as receiver,
        ):
            await sender.send(Message(body=b"x"))
            delivery = await receiver.receive(timeout=10)
            (told,) = await client.get("connections")
            assert (told["user"], told["user_provided_name"]) == ("guest", "shop-1")
            assert (told["protocol"], told["vhost"]) == ("AMQP 1-0", "/")
            assert told["state"] == "running"
            channels = await client.get("channels?columns=consumer_count,connection_details")
            assert sum(channel["consumer_count"] for channel in channels) == 1
            (consumer,) = await client.get("consumers/%2F")
            assert consumer["queue"] == {"name": "orders", "vhost": "/"}
            assert consumer["channel_details"]["connection_name"] == told["name"]
            queue = await client.get("queues/%2F/orders")
            assert (queue["messages_unacknowledged"], queue["consumers"]) == (1, 1)
            name = told["name"].replace(" ", "%20").replace(">", "%3E")
            assert (await client.get(f"connections/{name}"))["name"] == told["name"]
            await client.ask("DELETE", f"connections/{name}", status=204)
            with pytest.raises(ferrymq.AmqpError):
                await receiver.receive(timeout=10)
            assert delivery.message.body == b"x"
        await client.ask("DELETE", "connections/other", status=404)


async def test_lists_are_sorted_and_come_in_pages() -> None:
    async with api() as client:
        for number in range(5):
            await client.ask("PUT", f"queues/%2F/q{number}", {}, 201)
        page = await client.get("queues?page=2&page_size=2&columns=name&sort=name")
        assert page["items"] == [{"name": "q2"}, {"name": "q3"}]
        assert (page["page_count"], page["total_count"], page["filtered_count"]) == (3, 5, 5)
        page = await client.get("queues?page=1&name=Q3&columns=name")
        assert (page["items"], page["total_count"]) == ([{"name": "q3"}], 5)
        page = await client.get("queues?page=1&name=%5Eq.%2A&use_regex=true")
        assert page["item_count"] == 5
        assert (
            "no '['" in (await client.get("queues?page=1&name=%5Ba&use_regex=true", 400))["reason"]
        )
        await client.get("queues?page=4&page_size=2", 400)
        named = await client.get(
            "queues?sort=name&sort_reverse=true&columns=name,message_stats.publish"
        )
        assert named[0] == {"name": "q4", "message_stats": {"publish": 0}}


async def test_the_broker_itself() -> None:
    async with api() as client:
        overview = await client.get("overview")
        assert (overview["rabbitmq_version"], overview["product_name"]) == ("4.2.0", "ferrymq")
        assert overview["object_totals"]["connections"] == 0
        assert overview["queue_totals"]["messages"] == 0
        (node,) = await client.get("nodes")
        assert node["running"] and (await client.get(f"nodes/{node['name']}"))["name"]
        assert [each["name"] for each in await client.get("vhosts")] == ["/", "shop"]
        assert (await client.get("vhosts/shop"))["messages"] == 0
        assert await client.get("whoami") == {"name": "guest", "tags": ["administrator"]}
        assert await client.get("aliveness-test/%2F") == {"status": "ok"}
        for check in ("alarms", "local-alarms", "ready-to-serve-clients", "virtual-hosts"):
            assert await client.get(f"health/checks/{check}") == {"status": "ok"}
        for check in ("is-in-service", "node-is-quorum-critical", "protocol-listener/amqp"):
            assert (await client.get(f"health/checks/{check}"))["status"] == "ok"
        await client.get(f"health/checks/port-listener/{client.port}")
        failed = await client.get("health/checks/port-listener/1", 503)
        assert failed["status"] == "failed" and failed["ports"] == [client.port]
        await client.get("health/checks/other", 404)
        # What is made while the broker runs needs a file to survive.
        for path, body, setting in (
            ("users/new", {"password": "x", "tags": ""}, "users-file"),
            ("policies/%2F/new", {"pattern": "x", "definition": {}}, "policies-file"),
        ):
            refused = await client.ask("PUT", path, body, 400)
            assert setting in refused["reason"]
        await client.ask("PUT", "vhosts/shop", {}, 204)
        refused = await client.ask("PUT", "vhosts/new", {}, 405)
        assert "configuration" in refused["reason"]
        await client.get("nothing", 404)
        assert await client.get("parameters") == []


RULES = [
    {"who": "group:administrator", "may": "*", "where": ["*", "$management"]},
    {"who": "user:app", "may": ["create", "delete", "manage"], "where": ["app-*"]},
    {"who": "user:app", "may": "send", "where": ["app-*", "/exchanges/sales"]},
    {"who": "user:app", "may-not": "receive", "where": "app-secret"},
    {"who": "user:app", "may": ["receive", "browse"], "where": ["app-*", "/exchanges/sales"]},
]


def guarded() -> Config:
    return config(
        security={
            "users": {"admin": "a", "app": "b", "nobody": "c"},
            "groups": {"administrator": ["admin"]},
        },
        rule=RULES,
    )


async def test_rights_count() -> None:
    async with api(guarded(), aiohttp.encode_basic_auth("admin", "a")) as admin:
        await admin.ask("PUT", "queues/%2F/app-in", {}, 201)
        await admin.ask("PUT", "queues/%2F/other", {}, 201)
        await admin.ask("PUT", "exchanges/%2F/sales", {"type": "topic"}, 201)
        users = {each["name"]: each["tags"] for each in await admin.get("users")}
        assert users == {"admin": ["administrator"], "app": [], "nobody": []}
        assert await admin.get("users/nobody/permissions") == []
        (permission,) = await admin.get("users/app/permissions")
        assert permission["configure"] == "^(?:app\\-.*)$"
        assert permission["write"] == "^(?:app\\-.*|sales)$"
        assert (
            permission["read"] == "^(?:(?!(?:app\\-secret)$)app\\-.*|(?!(?:app\\-secret)$)sales)$"
        )
        app = Api(admin.port, aiohttp.encode_basic_auth("app", "b"))
        nobody = Api(admin.port, aiohttp.encode_basic_auth("nobody", "c"))
        wrong = Api(admin.port, aiohttp.encode_basic_auth("app", "wrong"))
        nameless = Api(admin.port, None)
        try:
            assert [each["name"] for each in await app.get("queues")] == ["app-in"]
            await app.ask("PUT", "queues/%2F/app-out", {}, 201)
            await app.ask("PUT", "queues/%2F/mine", {}, 401)
            await app.get("queues/%2F/other", 401)
            # Who may read an exchange may bind to it.
            await app.ask("POST", "bindings/%2F/e/sales/q/app-in", {"routing_key": "a"}, 201)
            await app.ask("POST", "bindings/%2F/e/sales/q/other", {"routing_key": "a"}, 401)
            message = {"routing_key": "other", "payload": "x", "payload_encoding": "string"}
            await app.ask("POST", "exchanges/%2F/amq.default/publish", message, 401)
            await app.get("users", 401)
            await app.get("definitions", 401)
            assert await app.get("whoami") == {"name": "app", "tags": []}
            assert [each["user"] for each in await app.get("permissions")] == ["app"]
            await nobody.get("queues/%2F", 401)
            assert await nobody.get("queues") == []
            assert (await wrong.get("overview", 401))["reason"] == "login failed"
            await nameless.get("overview", 401)
        finally:
            for client in (app, nobody, wrong, nameless):
                await client.close()


async def test_definitions_come_in_and_go_out() -> None:
    async with api() as client:
        report = await client.ask("POST", "definitions", DEFINITIONS.read_bytes())
        nodes = {"queues": 4, "exchanges": 2, "bindings": 3, "policies": 2}
        assert report["imported"] == {**nodes, "users": 0, "permissions": 0}
        reasons = {each["reason"].partition(": ")[2] for each in report["omitted"]}
        assert {"set [security] users-file", "set [security] rules-file"} <= reasons
        orders = await client.get("queues/%2F/orders")
        assert (orders["policy"], orders["operator_policy"]) == ("dlx", "op")
        assert orders["arguments"] == {"x-message-ttl": 60000}
        told = await client.get("definitions")
        assert {each["name"] for each in told["queues"]} == {"orders", "q1", "st", "app-in"}
        assert len(told["bindings"]) == 3
        again = await client.ask("POST", "definitions", json.dumps(told))
        assert again["imported"] == {**nodes, "users": 0, "permissions": 0}
        assert [each["name"] for each in (await client.get("definitions/shop"))["queues"]] == [
            "app-in"
        ]
        assert [each["name"] for each in await client.get("policies/%2F")] == ["dlx"]
        assert [each["name"] for each in await client.get("operator-policies")] == ["op"]
        # The policy counts for queues that come later, and for what they hold.
        await client.ask("PUT", "queues/%2F/orders-2", {}, 201)
        await client.ask("PUT", "queues/%2F/orders-2", {}, 204)
        message = {"routing_key": "orders-2", "payload": "x", "payload_encoding": "string"}
        for _ in range(12):
            await client.ask("POST", "exchanges/%2F/amq.default/publish", message)
        assert (await client.get("queues/%2F/orders-2"))["messages"] == 10
        # The dead letters of the policy went over its exchange.
        assert (await client.get("queues/%2F/q1"))["messages"] == 2
        await client.ask("POST", "definitions", "{", 400)


ADMIN = shutil.which("rabbitmqadmin")


@pytest.mark.skipif(ADMIN is None, reason="rabbitmqadmin is not installed")
async def test_rabbitmqadmin(tmp_path: Path) -> None:
    assert ADMIN is not None
    async with api() as client:

        async def admin(*words: str) -> str:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                ADMIN,
                f"--port={client.port}",
                "--host=127.0.0.1",
                *words,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            said, _ = await process.communicate()
            assert process.returncode == 0, said.decode()
            return said.decode()

        await admin("declare", "queue", "name=orders", "queue_type=quorum")
        await admin("declare", "exchange", "name=sales", "type=topic")
        await admin("declare", "binding", "source=sales", "destination=orders", "routing_key=eu.#")
        said = await admin("publish", "exchange=sales", "routing_key=eu.fr", "payload=a teapot")
        assert said == "Message published\n"
        assert "a teapot" in await admin("get", "queue=orders", "ackmode=ack_requeue_true")
        assert "| orders | 1 " in await admin("list", "queues")
        for kind in ("connections", "channels", "consumers", "exchanges", "bindings", "users"):
            await admin("list", kind)
        for kind in ("vhosts", "permissions", "nodes", "parameters", "policies", "vhost_limits"):
            await admin("list", kind)
        assert "4.2.0" in await admin("show", "overview")
        file = str(tmp_path / "definitions.json")
        await admin("export", file)
        await admin("purge", "queue", "name=orders")
        await admin(
            "delete",
            "binding",
            "source=sales",
            "destination_type=queue",
            "destination=orders",
            "properties_key=eu.%23",
        )
        await admin("delete", "exchange", "name=sales")
        await admin("delete", "queue", "name=orders")
        assert "No items" in await admin("list", "queues")
        await admin("import", file)
        assert "eu.#" in await admin("list", "bindings")
