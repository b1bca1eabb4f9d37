"""Flows of a client that takes nothing cost the broker nothing that stays."""

from __future__ import annotations

import pytest

from tests.broker.harness import Network


@pytest.mark.parametrize("why", ["window", "transport"])
def test_a_consumer_waits_once_however_often_it_asks(net: Network, why: str) -> None:
    net.connect().sender("q").send(*[b"x"] * 6)
    client = net.connect(incoming_window=2)
    receiver, other = client.receiver("q"), client.receiver("q")
    # The client reads no more, and its window closes.
    net.clients.remove(client)
    handler = client.handler
    if why == "transport":
        handler.output.pause()
    for credit in range(10, 100):
        receiver.link.set_credit(credit)
        other.link.set_credit(credit)
        handler.receive_data(client.engine.data_to_send(), net.now)
        net.run()
    assert len(handler.output.windowed) + len(handler.output.stalled) == 2
    other.link.detach(closed=True)
    handler.receive_data(client.engine.data_to_send(), net.now)
    assert len(handler.output.windowed) + len(handler.output.stalled) == 1
    net.clients.append(client)
    handler.output.resume()
    net.run()
    assert net.queue("q").available == 0
    assert not handler.output.windowed and not handler.output.stalled
