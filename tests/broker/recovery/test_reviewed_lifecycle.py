"""What messages have of settings that are others by now, and bodies that nobody has."""

from __future__ import annotations

from dataclasses import replace

from ferrymq_broker.store.tables import BODY
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import Data, Header
from ferrymq_types.transactions import TransactionalState
from tests.broker.harness import Network, encode
from tests.broker.recovery.kit import browse, send, store_of, subscribe
from tests.broker.transactions.kit import Controller


def test_a_time_to_live_that_is_no_more_holds_for_those_that_had_it(net: Network) -> None:
    queue = net.declare("q", QueuePolicy(message_ttl=5000))
    send(net.connect().sender("q"), b"a")
    queue.change_policy(replace(queue.policy, message_ttl=0))
    net.space.changed(queue)
    send(net.connect().sender("q"), b"b")
    net.restart()
    assert browse(net, "q") == [b"a", b"b"]
    net.advance(6)
    assert browse(net, "q") == [b"b"]


def test_a_body_goes_that_nobody_had_for_long(net: Network) -> None:
    # Committed to two subscriptions, where its time is over at once.
    client = net.connect()
    for name in ("one", "two"):
        subscribe(client, "t", name)
    control = Controller(client)
    sender = client.sender("t")
    txn = control.declare()
    payload = encode(Header(durable=True, ttl=0), Data(value=b"a"))
    sender.send_encoded(payload, state=TransactionalState(txn_id=txn))
    control.commit(txn)
    assert store_of(net).count(BODY) == 0
    assert net.broker.agenda.bodies == {}
