"""Limits of connections with several workers: the total is that of all, an address has its limit at
each."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import pytest

from tests.broker.workers.several import HOSTS, TENANT, WorkerBroker, opening, wait_until
from tests.raw.client import Client
from tests.raw.frames import AMQP_HEADER

TOTAL, EACH = 6, 4
CONFIG = f"""
[limits]
connections = {TOTAL}
connections-per-address = {EACH}
[[listener]]
url = "amqp://127.0.0.1:0"
{TENANT}
"""


def opened(broker: WorkerBroker, acceptor: int, server: int) -> Client:
    """A client of a worker, which may have been accepted by the other one."""
    client = broker.connect(acceptor)
    return client.authenticate().open(opening(HOSTS[server]))


def refused(broker: WorkerBroker, acceptor: int) -> bool:
    """Whether a worker refuses one more connection."""
    with broker.connect(acceptor) as client:
        return client.send(AMQP_HEADER).take(len(AMQP_HEADER)) == b""


@pytest.fixture
def clients(broker: WorkerBroker) -> Iterator[list[Client]]:
    """The connections of a test, which have ended after it."""
    found: list[Client] = []
    yield found
    for client in found:
        client.close()
        client.socket.close()
    wait_until(
        lambda: broker.log.count("connection opened") == broker.log.count("connection closed"),
        "a connection is still open",
    )


def test_the_total_is_that_of_all_workers(broker: WorkerBroker, clients: list[Client]) -> None:
    for acceptor, server in ((0, 0), (0, 1), (1, 0), (1, 1), (0, 1), (1, 0)):
        clients.append(opened(broker, acceptor, server))
    for acceptor in (0, 1):
        assert refused(broker, acceptor)
    clients.pop().close()

    def joins() -> bool:
        try:
            clients.append(opened(broker, 1, 1))
        except (AssertionError, ConnectionError):
            return False
        return True

    # The place is free as soon as its worker knows of the end.
    wait_until(joins, "no place has become free")
    assert refused(broker, 0)


def test_an_address_has_its_limit_at_each_worker(
    broker: WorkerBroker, clients: list[Client]
) -> None:
    for _ in range(EACH):
        clients.append(opened(broker, 0, 0))
    assert refused(broker, 0)
    # The other one still accepts, but cannot pass it on.
    clients.append(opened(broker, 1, 1))
    with broker.connect(1) as client:
        client.authenticate().send(AMQP_HEADER, opening(HOSTS[0]))
        assert client.take(8) == AMQP_HEADER
        assert client.ended()


def test_a_connection_that_is_lost_on_its_way_does_not_count(
    broker: WorkerBroker, clients: list[Client]
) -> None:
    """A worker without free file descriptors does not get those of a client."""
    pid = broker.pids[1]
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), limits[1]))
    try:
        with broker.connect(0) as client:
            client.authenticate().send(AMQP_HEADER, opening(HOSTS[1]))
            assert client.take(8) == AMQP_HEADER
            assert client.ended()
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    for server in (0, 1, 0, 1, 0, 1):
        clients.append(opened(broker, server, server))
    assert refused(broker, 0)
