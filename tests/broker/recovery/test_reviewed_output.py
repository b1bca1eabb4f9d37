"""Output waits for the batch that it tells of, and for no later one."""

from __future__ import annotations

from ferrymq_types.messaging import Accepted
from tests.broker.harness import Network
from tests.broker.recovery.kit import browse, send, store_of


def test_who_goes_on_sending_is_told_of_what_is_on_disk(net: Network) -> None:
    sender = net.connect().sender("q")
    store = store_of(net)
    store.held = True
    (first,) = send(sender, b"a")
    (second,) = send(sender, b"b")
    assert first.remote_state is None and second.remote_state is None
    # The batch of the first is done; that of the second is under way from now on.
    store.held = False
    assert store.complete()
    store.held = True
    net.broker.on_stable(net.now)
    net.run()
    assert isinstance(first.remote_state, Accepted)
    assert second.remote_state is None
    store.release()
    net.run()
    assert isinstance(second.remote_state, Accepted)


def test_what_is_told_keeps_its_order(net: Network) -> None:
    client = net.connect()
    sender, receiver = client.sender("q"), client.receiver("other", credit=100)
    other = net.connect().sender("other")
    store = store_of(net)
    store.held = True
    send(sender, b"a")
    for number in range(3):
        # What is not durable comes to the same connection, behind the outcome.
        send(other, b"%d" % number, durable=False)
        send(sender, b"b")
    assert receiver.deliveries == []
    store.release()
    net.run()
    assert receiver.bodies() == [b"0", b"1", b"2"]
    assert browse(net, "q") == [b"a", b"b", b"b", b"b"]


def test_a_connection_that_is_closed_says_so_when_all_is_on_disk(net: Network) -> None:
    client = net.connect()
    sender = client.sender("q")
    store = store_of(net)
    store.held = True
    send(sender, b"a")
    client.close()
    assert not client.hung_up
    store.release()
    net.run()
    assert client.hung_up
    assert browse(net, "q") == [b"a"]
