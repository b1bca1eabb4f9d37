"""RabbitMQ's HTTP API of a broker with several workers: lists have the virtual hosts of all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import ferrymq
from ferrymq.errors import ConnectionClosed
from ferrymq_broker.management.sliced_query import finish
from ferrymq_rabbitmq.http_api.listing import ROWS, decoded_list, encoded_list
from tests.broker.workers.pages import TENANT, WORKERS, fetch, read
from tests.raw.process import Broker

CONFIG = f"""{WORKERS}
[[listener]]
url = "any://127.0.0.1:0"
[personality]
name = "rabbitmq"
{TENANT}
"""
WHO = "guest:guest"


@pytest.fixture(scope="module")
def api() -> Iterator[str]:
    """The URL of the API of a broker with a queue in each of two virtual hosts."""
    with Broker(CONFIG) as broker:
        url = f"{broker.monitoring}/api"
        for vhost, name in (("%2F", "orders"), ("tenant", "invoices")):
            assert fetch(f"{url}/queues/{vhost}/{name}", "PUT", {"durable": True}, WHO)[0] == 201
        yield url


@pytest.fixture(scope="module")
def amqp(api: str) -> str:
    """The URL for clients, which the API tells."""
    (listener,) = read(f"{api}/overview", user=WHO)["listeners"]
    return f"amqp://127.0.0.1:{listener['port']}"


def listed(api: str, path: str) -> Any:
    return read(f"{api}/{path}", user=WHO)


def test_lists_have_what_all_workers_serve(api: str) -> None:
    found = listed(api, "queues?columns=name,vhost")
    assert found == [
        {"name": "orders", "vhost": "/"},
        {"name": "invoices", "vhost": "tenant"},
    ]
    assert [each["name"] for each in listed(api, "vhosts")] == ["/", "tenant"]
    assert [each["name"] for each in listed(api, "queues/tenant")] == ["invoices"]
    exchanges = {(each["vhost"], each["name"]) for each in listed(api, "exchanges")}
    assert {("/", "amq.topic"), ("tenant", "amq.topic")} <= exchanges
    assert {each["vhost"] for each in listed(api, "bindings")} == {"/", "tenant"}
    assert listed(api, "policies") == []


def test_lists_are_arranged_as_a_whole(api: str) -> None:
    page = listed(api, "queues?columns=name&sort=name&page=1&page_size=1")
    assert page["items"] == [{"name": "invoices"}]
    assert (page["total_count"], page["page_count"]) == (2, 2)
    assert [each["name"] for each in listed(api, "queues?name=ord")] == ["orders"]
    assert fetch(f"{api}/queues?page=9&page_size=1", user=WHO)[0] == 400


def test_figures_are_sums(api: str) -> None:
    overview = listed(api, "overview")
    assert overview["object_totals"]["queues"] == 2
    assert overview["queue_totals"]["messages"] == 0
    assert [each["name"] for each in listed(api, "nodes")] == ["rabbit@ferrymq"]
    assert listed(api, "health/checks/alarms") == {"status": "ok"}


async def test_connections_are_found_and_closed_at_their_worker(api: str, amqp: str) -> None:
    async with ferrymq.connect(amqp, hostname="vhost:tenant", reconnect=False) as connection:
        receiver = await connection.receiver("/queues/invoices")
        (found,) = listed(api, "connections")
        assert found["vhost"] == "tenant"
        path = f"{api}/connections/{found['name'].replace(' ', '%20').replace('>', '%3E')}"
        assert read(path, user=WHO)["name"] == found["name"]
        assert fetch(path, "DELETE", user=WHO)[0] == 204
        with pytest.raises(ConnectionClosed):
            await receiver.receive(timeout=20)
    assert listed(api, "connections") == []
    assert fetch(path, "DELETE", user=WHO)[0] == 404


def test_definitions_are_exported_and_imported_as_a_whole(api: str) -> None:
    found = listed(api, "definitions")
    assert {(each["vhost"], each["name"]) for each in found["queues"]} == {
        ("/", "orders"),
        ("tenant", "invoices"),
    }
    assert [each["name"] for each in found["vhosts"]] == ["/", "tenant"]
    assert len(found["permissions"]) == 2
    more = {
        "vhosts": [{"name": vhost} for vhost in ("/", "tenant", "none")],
        "queues": [
            {"name": "imported", "vhost": vhost, "durable": True, "arguments": {}}
            for vhost in ("/", "tenant", "none")
        ],
    }
    status, _ = fetch(f"{api}/definitions", "POST", more, WHO)
    assert status == 200
    (alone,) = read(f"{api}/definitions", method="POST", body=more, user=WHO)["omitted"]
    assert (alone["kind"], alone["name"]) == ("virtual host", "none")
    for vhost in ("%2F", "tenant"):
        assert fetch(f"{api}/queues/{vhost}/imported", "DELETE", user=WHO)[0] == 204


@pytest.mark.parametrize("count", [0, 1, 50, 120])
def test_a_list_of_another_worker_is_read_in_steps(count: int) -> None:
    items = [{"name": f"[{at}],", "arguments": {"a": [at, None]}} for at in range(count)]
    encoded = finish(encoded_list(items))
    assert json.loads(encoded) == items
    steps = decoded_list(encoded)
    assert sum(1 for _ in steps) == count // ROWS
    assert finish(decoded_list(encoded)) == items
