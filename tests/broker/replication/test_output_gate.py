"""A broker that is replicated writes nothing after the end of its lease."""

from __future__ import annotations

import pytest

from ferrymq_broker.connections.output_turns import OutputGate
from ferrymq_types.messaging import Data, Header
from ferrymq_types.transport import Error
from tests.broker.harness import Network
from tests.broker.stores import ManualStore


class Lease:
    """A lease that a test ends and renews."""

    def __init__(self, net: Network) -> None:
        self.valid = True
        self.gate = OutputGate(lambda: self.valid)
        net.broker.output.gate = self.gate
        self._net = net

    def renew(self) -> None:
        """The lease is valid again, and the broker knows."""
        self.valid = True
        self._net.broker.begin_pass(self._net.now)
        self.gate.reopen()
        self._net.finish()


def test_what_waits_is_written_when_the_lease_is_renewed() -> None:
    net = Network(memory=True)
    lease = Lease(net)
    net.declare("orders")
    client = net.connect()
    sender, receiver = client.sender("orders"), client.receiver("orders", credit=10)
    lease.valid = False
    sender.send(b"one")
    sender.send(b"two")
    assert receiver.bodies() == []
    assert not client.inbox
    lease.renew()
    assert receiver.bodies() == [b"one", b"two"]


def test_outcomes_on_disk_wait_too() -> None:
    store = ManualStore()
    net = Network(store=store)
    lease = Lease(net)
    client = net.connect()
    sender = client.sender("orders")
    store.held = True
    delivery = sender.send_sections(Header(durable=True), Data(value=b"one"))
    lease.valid = False
    store.held = False
    net.later.append(net._complete)
    net.run()
    assert store.batches > 0
    assert delivery.remote_state is None
    lease.renew()
    assert delivery.remote_state is not None


def test_an_idle_frame_waits_too() -> None:
    store = ManualStore()
    net = Network(store=store)
    lease = Lease(net)
    client = net.connect(idle_time_out=10.0)
    sender = client.sender("orders")
    store.held = True
    sender.send_sections(Header(durable=True), Data(value=b"one"))
    client.wire = []
    net.advance(6)
    assert [True for sent, _ in client.wire if not sent], "the disk is slow: the broker is there"
    client.wire = []
    lease.valid = False
    net.advance(3)
    assert not [True for sent, _ in client.wire if not sent]


@pytest.mark.spec("2.7.9")
def test_last_words_say_no_more_than_the_close() -> None:
    net = Network(memory=True)
    lease = Lease(net)
    client = net.connect()
    sender = client.sender("orders")
    lease.valid = False
    (delivery,) = sender.send(b"one")
    handler = client.handler
    words = handler.last_words(Error(condition="amqp:connection:forced", description="gone"))
    client.inbox.append(words)
    client.step()
    client.step()
    assert client.closed_with is not None
    assert client.closed_with.condition == "amqp:connection:forced"
    assert delivery.remote_state is None


def test_a_standby_closes_each_connection_after_its_open() -> None:
    net = Network(memory=True)
    net.broker.refusal = lambda: Error(condition="amqp:connection:redirect", description="there")
    client = net.connect()
    assert client.closed_with is not None
    assert client.closed_with.condition == "amqp:connection:redirect"
    assert client.engine.remote_open is not None


@pytest.mark.parametrize(
    ("hostname", "told"),
    [("vhost:tenant", "vhost:tenant"), ("Tenant.example", "Tenant.example"), ("here", "there")],
)
def test_a_redirect_keeps_the_virtual_host_of_the_client(hostname: str, told: str) -> None:
    net = Network(memory=True)
    net.broker.add_space("tenant", ["tenant.example"], 10)
    info: dict[str, object] = {"hostname": "there", "network-host": "there"}
    net.broker.refusal = lambda: Error(condition="amqp:connection:redirect", info=info)
    client = net.connect(hostname=hostname)
    assert client.closed_with is not None
    assert client.closed_with.info == {**info, "hostname": told}
