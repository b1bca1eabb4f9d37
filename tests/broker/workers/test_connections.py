"""Connections that one worker accepts and another one serves: what a client sees is what it sees of
a broker with one process."""

from __future__ import annotations

import re
import socket
from collections import Counter

import pytest

from tests.broker.workers.several import HOSTS, TENANT, WorkerBroker, opening
from tests.raw.client import Client
from tests.raw.frames import (
    AMQP_HEADER,
    SASL_HEADER,
    attach_frame,
    begin_frame,
    close_frame,
    disposition_frame,
    flow_frame,
    sasl_init,
    source,
    target,
    transfer_frame,
)
from tests.raw.values import TRUE, binary, composite, data_section, string, uint

CONFIG = f"""
unknown-hostname = "refuse"
[log]
level = "debug"
[[listener]]
url = "amqp://127.0.0.1:0"
{TENANT}
"""

# The worker that accepts, and the one that serves.
ways = pytest.mark.parametrize(
    ("acceptor", "server"), [(0, 0), (0, 1), (1, 0), (1, 1)], ids=["00", "01", "10", "11"]
)

ACCEPTED = composite(0x24, [])


def login(sasl: bool) -> bytes:
    """What a client sends before the header of AMQP."""
    return SASL_HEADER + sasl_init() if sasl else b""


def everything(server: int, address: str, count: int, sasl: bool = True) -> bytes:
    """A whole conversation, which waits for nothing: `count` messages into a queue and out again,
    pre-settled."""
    where = string(address)
    return b"".join(
        (
            login(sasl),
            AMQP_HEADER,
            opening(HOSTS[server]),
            begin_frame(),
            attach_frame("s", 0, source=source(), target=target(where)),
            attach_frame("r", 1, receiver=True, source=source(where), target=target()),
            flow_frame(uint(1), uint(count), uint(0)),
            *(
                transfer_frame(
                    data_section(b"%d" % at), 0, uint(at), binary(b"%d" % at), settled=TRUE
                )
                for at in range(count)
            ),
        )
    )


def begun(client: Client, hostname: str) -> Client:
    """Log in, open and begin."""
    client.authenticate().open(opening(hostname)).send(begin_frame()).expect("begin")
    return client


def answered(client: Client, sasl: bool) -> None:
    """Read the answers to headers and login."""
    if sasl:
        assert client.take(8) == SASL_HEADER
        client.expect("sasl-mechanisms")
        assert client.expect("sasl-outcome").field(0) == 0
    assert client.take(8) == AMQP_HEADER
    client.expect("open")
    client.expect("begin")


@ways
@pytest.mark.parametrize("sasl", [True, False], ids=["sasl", "plain"])
def test_a_client_that_waits_for_nothing(
    broker: WorkerBroker, address: str, acceptor: int, server: int, sasl: bool
) -> None:
    with broker.connect(acceptor) as client:
        client.send(everything(server, address, 200, sasl))
        answered(client, sasl)
        got = [each.payload for each in client.arrivals(200)]
        assert got == [data_section(b"%d" % at) for at in range(200)]
        client.close()


@ways
def test_each_byte_in_a_write_of_its_own(
    broker: WorkerBroker, address: str, acceptor: int, server: int
) -> None:
    with broker.connect(acceptor) as client:
        for byte in everything(server, address, 3):
            client.send(bytes((byte,)))
        answered(client, True)
        got = [each.payload for each in client.arrivals(3)]
        assert got == [data_section(b"%d" % at) for at in range(3)]
        client.close()


@ways
@pytest.mark.parametrize("cut", [1, 7, 8, 9, 30, 60, 90])
def test_a_read_that_ends_anywhere_in_the_handshake(
    broker: WorkerBroker, address: str, acceptor: int, server: int, cut: int
) -> None:
    """The first part has been handled when the second one comes: the broker has answered, or the
    worker has nothing to say yet."""
    said = everything(server, address, 2)
    with broker.connect(acceptor) as client:
        client.send(said[:cut])
        if cut >= 8:
            assert client.take(8) == SASL_HEADER
            client.expect("sasl-mechanisms")
        client.send(said[cut:])
        if cut < 8:
            answered(client, True)
        else:
            assert client.expect("sasl-outcome").field(0) == 0
            assert client.take(8) == AMQP_HEADER
            client.expect("open")
            client.expect("begin")
        assert len(client.arrivals(2)) == 2
        client.close()


@ways
def test_a_client_that_sends_everything_and_then_its_end(
    broker: WorkerBroker, address: str, acceptor: int, server: int
) -> None:
    """The messages are there, although it has not waited for an answer. It has got some of them,
    which go back: it has not settled them."""
    with broker.connect(acceptor) as client:
        client.send(everything(server, f"{address}-of-one", 50))
        client.half_close()
        answered(client, True)
        while client.read() is not None:
            pass
    with begun(broker.connect(server), HOSTS[server]) as client:
        client.receiver(f"{address}-of-one")
        assert len(client.arrivals(50)) == 50
        client.close()


@ways
def test_the_client_logs_in_first_and_then_opens(
    broker: WorkerBroker, address: str, acceptor: int, server: int
) -> None:
    with begun(broker.connect(acceptor), HOSTS[server]) as client:
        client.sender(address).publish([data_section(b"one")])
        client.receiver(address)
        (got,) = client.arrivals(1)
        client.send(disposition_frame(0, settled=TRUE, state=ACCEPTED))
        assert got.payload == data_section(b"one")
        client.close()


def test_the_right_worker_serves_each_connection(broker: WorkerBroker) -> None:
    for acceptor in (0, 1):
        for server in (0, 1):
            with broker.connect(acceptor) as client:
                name = f"container-{acceptor}{server}"
                client.authenticate().open(opening(HOSTS[server], name)).close()
    opened = re.findall(r"connection opened .*container=(\S+).*worker=(\d)", broker.log)
    served = Counter(one for one in opened if one[0].startswith("container-"))
    assert served == {
        ("container-00", "0"): 1,
        ("container-10", "0"): 1,
        ("container-01", "1"): 1,
        ("container-11", "1"): 1,
    }


@pytest.mark.parametrize("acceptor", [0, 1])
def test_any_name_of_a_virtual_host(broker: WorkerBroker, address: str, acceptor: int) -> None:
    with begun(broker.connect(0), "vhost:tenant") as client:
        client.sender(address)
        client.publish([data_section(b"here")])
        client.close()
    with begun(broker.connect(acceptor), "Tenant.Example") as client:
        client.receiver(address)
        assert client.arrivals(1)[0].payload == data_section(b"here")
        client.close()


@pytest.mark.parametrize("acceptor", [0, 1])
@pytest.mark.parametrize("sasl", [True, False], ids=["sasl", "plain"])
def test_a_virtual_host_that_does_not_exist(
    broker: WorkerBroker, acceptor: int, sasl: bool
) -> None:
    with broker.connect(acceptor) as client:
        if sasl:
            client.authenticate()
        client.open(opening("vhost:nobody"))
        assert client.verdict()[:2] == ("connection", "amqp:not-found")


@ways
def test_a_mistake_behind_the_open(broker: WorkerBroker, acceptor: int, server: int) -> None:
    """A frame that is none, in the same write as the open."""
    with broker.connect(acceptor) as client:
        client.authenticate().send(AMQP_HEADER, opening(HOSTS[server]), b"\0\0\0\7nothing")
        assert client.take(8) == AMQP_HEADER
        client.expect("open")
        assert client.verdict()[:2] == ("connection", "amqp:connection:framing-error")


@ways
def test_a_client_that_goes_in_the_middle(broker: WorkerBroker, acceptor: int, server: int) -> None:
    """A reset right after the open harms nobody."""
    with broker.connect(acceptor) as client:
        client.send(login(True), AMQP_HEADER, opening(HOSTS[server]))
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    with broker.connect(acceptor) as client:
        client.authenticate().open(opening(HOSTS[server])).close()
    broker.check()


@ways
def test_a_close_in_the_same_write(broker: WorkerBroker, acceptor: int, server: int) -> None:
    with broker.connect(acceptor) as client:
        client.send(login(True), AMQP_HEADER, opening(HOSTS[server]), close_frame())
        assert client.take(8) == SASL_HEADER
        client.expect("sasl-mechanisms")
        client.expect("sasl-outcome")
        assert client.take(8) == AMQP_HEADER
        client.expect("open")
        client.expect("close")
        assert client.ended()
