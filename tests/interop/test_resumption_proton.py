"""Proton and termini that outlive their links. It asks for them and reads the answer, but knows no
unsettled maps: what its receivers held comes again, to them and to nobody else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proton import Link, Message, Terminus
from proton.reactor import DurableSubscription, LinkOption

from tests.interop.broker_process import BrokerProcess
from tests.interop.proton_client import TIMEOUT, connect
from tests.interop.proton_nodes import connect_as

pytestmark = pytest.mark.interop

CONFIG = """
[store]
path = "data"
"""


class DurableTarget(LinkOption):
    """The target keeps what is unsettled for a minute."""

    def apply(self, link: Link) -> None:
        link.target.durability = Terminus.DELIVERIES
        link.target.expiry_policy = Terminus.EXPIRE_WITH_CONNECTION
        link.target.timeout = 60


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(CONFIG) as broker:
        yield broker


def test_a_durable_target_is_granted_and_survives_the_broker(broker: BrokerProcess) -> None:
    for body in ("one", "two"):
        with connect_as(broker.url, "proton") as connection:
            sender = connection.create_sender("q", name="out", options=DurableTarget())
            target = sender.link.remote_target
            assert target.durability == Terminus.DELIVERIES
            assert target.expiry_policy == Terminus.EXPIRE_WITH_CONNECTION
            assert target.timeout == 60
            sender.send(Message(body, durable=True))
        broker.kill()
        broker.start()
    with connect(broker.url) as connection:
        receiver = connection.create_receiver("q", credit=2)
        for body in ("one", "two"):
            assert receiver.receive(TIMEOUT).body == body
            receiver.accept()


@pytest.mark.parametrize("killed", [False, True], ids=["connection", "broker"])
def test_what_a_durable_source_had_waits_for_its_client(
    broker: BrokerProcess, killed: bool
) -> None:
    with connect(broker.url) as other:
        other.create_sender("q").send(Message("held", durable=True))
    with connect_as(broker.url, "proton") as connection:
        mine = connection.create_receiver("q", credit=1, name="in", options=DurableSubscription())
        source = mine.link.remote_source
        assert source.durability == Terminus.DELIVERIES
        assert source.expiry_policy == Terminus.EXPIRE_NEVER
        assert mine.receive(TIMEOUT).body == "held"
        if not killed:
            connection.conn.close()
    if killed:
        broker.kill()
        broker.start()
    with connect(broker.url) as other:
        other.create_sender("q").send(Message("free", durable=True))
        receiver = other.create_receiver("q", credit=1)
        assert receiver.receive(TIMEOUT).body == "free"
        receiver.accept()
        receiver.close()
    with connect_as(broker.url, "proton") as connection:
        mine = connection.create_receiver("q", credit=1, name="in", options=DurableSubscription())
        again = mine.receive(TIMEOUT)
        assert again.body == "held" and not again.first_acquirer
        mine.accept()
        mine.close()
    with connect(broker.url) as other:
        other.create_sender("q").send(Message("last", durable=True))
        receiver = other.create_receiver("q", credit=1)
        assert receiver.receive(TIMEOUT).body == "last"
        receiver.accept()
