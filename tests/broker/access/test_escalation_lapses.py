"""Rights that end while something is under way: nothing more comes of it than was taken in."""

from __future__ import annotations

from ferrymq_broker.access.grants import Grant
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.access.patterns import AddressPattern
from ferrymq_broker.access.rules import ANYBODY, Rule, Subject, bind_rules
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_broker.values.rights import RECEIVE, SEND
from ferrymq_types.messaging import Accepted, Data
from ferrymq_types.transactions import TransactionalState
from tests.broker.access.guarded import UNAUTHORIZED, condition
from tests.broker.harness import Client, Network, encode
from tests.broker.transactions.kit import Controller, acquire, post

_ALL = Rule([Subject(ANYBODY)], SEND | RECEIVE, 0, [AddressPattern("*")])
BIG = bytes(40_000)


def shop(**options: int) -> Network:
    net = Network(**options)  # type: ignore[arg-type]
    net.broker.guarded = True
    net.broker.takes_tokens = True
    for name in ("q", "other"):
        net.declare(name, QueuePolicy())
    return net


def bearer(net: Network, **options: int) -> Client:
    """A client with a token for `q`, which lapses, and one for `other`, which does not."""
    client = net.connect(**options)
    for scope, expires in (("q", 100.0), ("other", 0.0)):
        token = UserIdentity(None, expires=expires)
        client.handler.client.access.put_grant(Grant(scope, token, bind_rules([_ALL], token)))
    return client


def lapse(client: Client) -> None:
    net = client.net
    net.broker.begin_pass(net.now)
    client.handler.client.access.expire_grants(100.0)
    client.handler.links.reauthorize()
    net.broker.finish_pass()


def test_a_message_that_is_half_sent_is_not_published() -> None:
    net = shop()
    client = bearer(net, max_frame_size=512)
    sender, other = client.sender("q"), client.sender("other")
    sender.link.send(encode(Data(value=BIG)))
    data = client.engine.data_to_send()
    assert len(data) > len(BIG)
    client.handler.receive_data(data[: len(data) // 2], net.now)
    lapse(client)
    client.handler.receive_data(data[len(data) // 2 :], net.now)
    net.run()
    assert condition(sender) == UNAUTHORIZED
    assert net.queue("q").message_count() == 0
    # The session and its other links go on.
    (sent,) = other.send(b"one")
    assert sent.remote_state == Accepted()


def test_the_rest_of_a_message_is_not_delivered() -> None:
    net = shop()
    feeder = bearer(net)
    feeder.sender("q").send(BIG)
    client = bearer(net, max_frame_size=512, incoming_window=4)
    receiver = client.receiver("q")
    client.silent = True
    receiver.link.set_credit(1)
    client.handler.receive_data(client.engine.data_to_send(), net.now)
    net.run()
    lapse(client)
    client.silent = False
    net.run()
    assert condition(receiver) == UNAUTHORIZED and not receiver.deliveries
    assert net.queue("q").message_count() == 1
    feeder.sender("other").send(b"one")
    assert client.receiver("other", credit=1).bodies() == [b"one"]


def test_a_transaction_acquires_nothing_more() -> None:
    net = shop()
    feeder = bearer(net)
    feeder.sender("q").send(b"one", b"two")
    client = bearer(net)
    control, receiver = Controller(client), client.receiver("q")
    txn = control.declare()
    acquire(receiver, txn, 1)
    assert receiver.bodies() == [b"one"]
    lapse(client)
    net.run()
    assert condition(receiver) == UNAUTHORIZED
    control.discharge(txn)
    assert receiver.bodies() == [b"one"]
    sender = client.sender("q")
    assert condition(sender) == UNAUTHORIZED
    # Both are there for others: what it held has gone back.
    assert feeder.receiver("q", credit=9).bodies() == [b"one", b"two"]


def test_a_message_in_a_transaction_is_asked_about_when_it_comes() -> None:
    net = shop()
    feeder, client = bearer(net), bearer(net)
    control, sender = Controller(client), client.sender("q")
    txn = control.declare()
    post(sender, txn, b"in time")
    lapse(client)
    # It is on its way before the client knows.
    sender.link.send(encode(Data(value=b"late")), state=TransactionalState(txn_id=txn))
    net.run()
    assert condition(sender) == UNAUTHORIZED
    assert condition(client.sender("q")) == UNAUTHORIZED
    control.discharge(txn)
    assert b"late" not in feeder.receiver("q", credit=9).bodies()
