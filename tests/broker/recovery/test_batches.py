"""What is not on disk has not happened: for nobody outside, and not after a restart."""

from __future__ import annotations

import pytest

from ferrymq_types.messaging import Accepted, Data, Header
from tests.broker.harness import Network
from tests.broker.recovery.kit import browse, send, store_of


@pytest.mark.spec("3.2.1")
def test_an_outcome_waits_for_the_disk_and_so_do_consumers(net: Network) -> None:
    sender = net.connect().sender("q")
    receiver = net.connect().receiver("q", credit=10)
    store = store_of(net)
    store.held = True
    (sent,) = send(sender, b"a")
    assert not sent.settled and sent.remote_state is None
    assert receiver.deliveries == []
    store.release()
    net.run()
    assert isinstance(sent.remote_state, Accepted)
    assert receiver.bodies() == [b"a"]


def test_what_was_not_on_disk_is_not_there(net: Network) -> None:
    sender = net.connect().sender("q")
    send(sender, b"a")
    store = store_of(net)
    store.held = True
    send(sender, b"b")
    # The batch that is under way, and the one that has come together meanwhile.
    send(sender, b"c")
    store.held = False
    net.restart()
    assert browse(net, "q") == [b"a"]


def test_messages_that_are_not_durable_do_not_wait(net: Network) -> None:
    client = net.connect()
    sender = client.sender("q")
    receiver = client.receiver("q", credit=10)
    store_of(net).held = True
    sent = sender.send_sections(Header(), Data(value=b"a"))
    assert isinstance(sent.remote_state, Accepted)
    assert receiver.bodies() == [b"a"]


def test_the_answer_to_an_attach_waits_for_its_node(net: Network) -> None:
    client = net.connect()
    store_of(net).held = True
    sender = client.sender("new")
    assert not sender.attached
    store_of(net).release()
    net.run()
    assert sender.attached


def test_recovery_writes_nothing(net: Network) -> None:
    send(net.connect().sender("q"), b"a", b"b")
    before = dict(store_of(net).records)
    batches = store_of(net).batches
    net.restart()
    assert store_of(net).records == before
    assert store_of(net).batches == batches
