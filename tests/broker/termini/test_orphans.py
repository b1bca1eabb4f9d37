"""What a terminus holds of a queue that is deleted while its receiver is away."""

from __future__ import annotations

from ferrymq_broker.store.tables import DELIVERY, TERMINUS
from tests.broker.harness import Network
from tests.broker.lasting import lasting_source
from tests.broker.recovery.kit import send, store_of, stored_network

LASTING = lasting_source("q")


def tidy(net: Network) -> None:
    net.broker.begin_pass(net.now)
    net.broker.tidy()
    net.run()


def test_it_goes_with_its_queue() -> None:
    net = stored_network()
    send(net.connect().sender("q"), b"a", b"b")
    client = net.connect(container_id="c")
    assert len(client.receiver("q", source=LASTING, name="link", credit=10).deliveries) == 2
    client.lose()
    tidy(net)
    assert len(net.broker.shared.termini) == 1 and net.broker.agenda.held > 0
    net.broker.begin_pass(net.now)
    net.space.remove(net.queue("q"))
    tidy(net)
    assert len(net.broker.shared.termini) == 0 and net.broker.agenda.held == 0
    store = store_of(net)
    assert store.count(TERMINUS) == 0 and store.count(DELIVERY) == 0
