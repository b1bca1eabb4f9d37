"""Management of a broker with several workers: a request goes to the worker of its virtual host,
whichever worker gets it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

import ferrymq
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.broker import Broker as BrokerCore
from ferrymq_broker.connections.authentication import ClientTransport
from ferrymq_broker.management.history import joined
from ferrymq_broker.server.handler_runs import HandlerRuns
from ferrymq_broker.server.http_handlers import (
    HttpHandlers,
    HttpPart,
    HttpRequest,
    HttpResponse,
)
from ferrymq_broker.server.workers.passed_request import (
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
)
from ferrymq_broker.server.workers.peers import Peers, WorkerError
from tests.broker.workers.pages import TENANT, WORKERS, fetch, read, worker_pids
from tests.raw.process import Broker

CONFIG = f"""{WORKERS}
[[listener]]
url = "amqp://127.0.0.1:0"
[[listener]]
url = "any://127.0.0.1:0"
[[queue]]
name = "orders"
{TENANT}
[[virtual-host.queue]]
name = "invoices"
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker of two workers."""
    with Broker(CONFIG) as process:
        yield process


def queues(broker: Broker, **options: object) -> list[str]:
    """The names of the queues that a request for all of them finds."""
    query = options.pop("query", "")
    found = read(f"{broker.monitoring}/management/v1/queue?{query}", **options)
    return [item["name"] for item in found["items"]]


def test_requests_find_the_worker_by_the_parameter(broker: Broker) -> None:
    assert "invoices" not in queues(broker)
    assert "orders" in queues(broker)
    assert "invoices" in queues(broker, query="virtual-host=tenant")
    assert fetch(f"{broker.monitoring}/management/v1/queue?virtual-host=none")[0] == 404


def test_each_worker_answers_for_both(broker: Broker) -> None:
    # Whichever worker accepts a connection.
    url = f"http://127.0.0.1:{broker.ports[1]}/management/v1/queue"
    for _ in range(10):
        assert [each["name"] for each in read(url)["items"]] == ["orders"]
        of_tenant = read(f"{url}?virtual-host=tenant")["items"]
        assert [each["name"] for each in of_tenant] == ["invoices"]


def test_requests_find_the_worker_by_the_host(broker: Broker) -> None:
    named = {"Host": "tenant.example", "Authorization": "Basic YTpi"}
    assert "invoices" in queues(broker, headers=named)
    # Worker 0 asks worker 1 by the name of the host, and that one says that it is worker 0.
    assert "orders" in queues(broker, headers=named, query="virtual-host=default")
    status, text = fetch(f"{broker.monitoring}/console/", headers=named)
    assert status == 200 and "<html" in text


async def test_what_is_made_over_http_is_there_for_clients(broker: Broker) -> None:
    url = f"{broker.monitoring}/management/v1/queue/made%20here?virtual-host=tenant"
    assert fetch(url, "PUT", {"max-length": 7})[0] == 201
    async with ferrymq.connect(broker.url, hostname="vhost:tenant") as connection:
        sender = await connection.sender("made here")
        await sender.send("kept")
    assert read(url)["messages"] == 1 and read(url)["max-length"] == 7
    assert fetch(url, "DELETE")[0] == 204
    assert fetch(url)[0] == 404


async def test_the_figures_of_the_broker_are_those_of_all_workers(broker: Broker) -> None:
    async with (
        ferrymq.connect(broker.url) as here,
        ferrymq.connect(broker.url, hostname="vhost:tenant") as there,
        here.management() as management,
        there.management() as of_tenant,
    ):
        read_here = await management.read("broker", "broker")
        read_there = await of_tenant.read("broker", "broker")
        assert read_here["connections"] == read_there["connections"] == 2
        assert read_here["missing-workers"] == []
        assert read_here["virtual-hosts"] == ["default", "tenant"]
        found = [each async for each in management.query("broker", ["name", "connections"])]
        assert [(each["name"], each["connections"]) for each in found] == [("broker", 2)]
        over_http = read(f"{broker.monitoring}/management/v1/broker/broker")
        assert over_http["connections"] == 2


def test_a_worker_that_does_not_answer_is_missing_in_the_figures(broker: Broker) -> None:
    pid = worker_pids(broker.pid)[1]
    os.kill(pid, signal.SIGSTOP)
    try:
        url = f"{broker.monitoring}/management/v1/broker/broker"
        assert read(url)["missing-workers"] == [1]
        definitions = read(f"{url}/get-definitions", method="POST", body={})
        (omitted,) = definitions["omitted"]
        assert (omitted["kind"], omitted["name"]) == ("virtual-host", "tenant")
        assert "worker 1" in omitted["reason"]
    finally:
        os.kill(pid, signal.SIGCONT)


def test_the_history_of_the_broker_is_that_of_all_workers(broker: Broker) -> None:
    url = f"{broker.monitoring}/management/v1/broker/broker/history"
    found = read(url, method="POST", body={"seconds": 60})
    assert found["interval"] == 5
    assert len(found["messages"]) == len(found["in-rate"])
    assert fetch(url, "POST", {"minutes": 1})[0] == 400


def test_samples_of_several_workers_are_put_together_by_time() -> None:
    first = {
        "interval": 5,
        "end": 20_000,
        "in-rate": [1.0, 2.0],
        "out-rate": [0.5, 0.5],
        "messages": [1, 1],
        "oldest-age": [3, 4],
    }
    # Its last sample is that of the interval before, and it has been there for longer.
    second = {
        "interval": 5,
        "end": 16_000,
        "in-rate": [1.0, 1.0],
        "out-rate": [0.5, 0.5],
        "messages": [2, 2],
        "oldest-age": [9, 1],
    }
    none = {"interval": 5, "end": None, "in-rate": [], "out-rate": [], "messages": []}
    assert joined([first, second, none]) == {
        "interval": 5,
        "end": 20_000,
        "in-rate": [1.0, 2.0, 2.0],
        "out-rate": [0.5, 1.0, 0.5],
        "messages": [2, 3, 1],
        "oldest-age": [9, 3, 4],
    }
    assert joined([none])["messages"] == []


def test_definitions_have_the_virtual_hosts_of_all_workers(broker: Broker) -> None:
    url = f"{broker.monitoring}/management/v1"
    assert fetch(f"{url}/queue/later?virtual-host=tenant", "PUT", {})[0] == 201
    found = read(f"{url}/broker/broker/get-definitions", method="POST", body={})
    assert found["omitted"] == []
    definitions = found["definitions"]
    assert definitions["workers"] == 2
    assert {"name": "orders"} in definitions["queue"]
    (tenant,) = definitions["virtual-host"]
    assert tenant["worker"] == 1
    assert [each["name"] for each in tenant["queue"]] == ["invoices", "later"]
    assert fetch(f"{url}/queue/later?virtual-host=tenant", "DELETE")[0] == 204


def test_a_request_waits_for_a_worker_that_starts_again() -> None:
    with Broker(CONFIG) as broker:
        ended = os.pidfd_open(worker_pids(broker.pid)[1])
        os.kill(worker_pids(broker.pid)[1], signal.SIGKILL)
        os.close(ended)
        assert queues(broker, query="virtual-host=tenant") == ["invoices"]
        # What the log says of the worker is no mistake.
        broker.kill()


class _AwayPeers(Peers):
    """Another worker that does not answer."""

    async def ask(self, number: int, question: str, content: bytes, timeout: float) -> bytes:
        raise WorkerError(f"worker {number} does not answer")


async def test_a_worker_that_is_away_is_named() -> None:
    broker = BrokerCore(lambda call: None, lambda due: None, 0.0)
    broker.add_space("tenant", [], 100).elsewhere = 1
    handlers = HttpHandlers()
    handlers.mount("tenant", "/x", lambda request: HttpResponse(200))
    runs = HandlerRuns(broker, lambda: 0.0, handlers, _AwayPeers({}))
    request = HttpRequest("GET", "/x", {}, {}, b"", "", ClientTransport("peer"))
    answer = await runs.run("tenant", request)
    assert answer.status == 503
    assert b"worker 1 does not answer" in answer.body


def test_requests_and_answers_arrive_as_they_were() -> None:
    who = UserIdentity(
        "ann", frozenset({"x"}), {"scope": frozenset({"a", "b"})}, "key", "PLAIN", 9.5, False
    )
    client = ClientTransport("10.0.0.1:9", "10.0.0.1", False, True)
    request = HttpRequest(
        "PUT", "/ü", {"a": "b"}, {"h": "v"}, b"\n\xff", "http://x", client, "/%C3%BC", who
    )
    space, found = decode_request(encode_request("tenant", request))
    assert (space, found.method, found.path, found.raw_path) == ("tenant", "PUT", "/ü", "/%C3%BC")
    assert (found.query, found.headers, found.body) == ({"a": "b"}, {"h": "v"}, b"\n\xff")
    assert (found.base, found.part) == ("http://x", HttpPart.WHOLE)
    for name in ("peer", "host", "loopback", "encrypted"):
        assert getattr(found.client, name) == getattr(client, name)
    for name in ("user", "groups", "claims", "key", "mechanism", "expires", "proven"):
        assert getattr(found.identity, name) == getattr(who, name)
    response = HttpResponse(201, b"\n", {"a": "b"}, True)
    assert decode_answer(encode_answer(response)) == response
    assert decode_answer(encode_answer("tenant")) == "tenant"
