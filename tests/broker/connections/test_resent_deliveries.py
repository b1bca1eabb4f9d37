"""Producing exactly once: what is sent again after a lost link is accepted and dropped."""

from __future__ import annotations

import pytest

from ferrymq.engine.delivery import OutgoingDelivery
from ferrymq.engine.sasl import Plain
from ferrymq_broker.config.model import Config
from ferrymq_broker.connections import seen_tags
from ferrymq_types.messaging import Accepted, Data, Rejected
from ferrymq_types.transport import ReceiverSettleMode
from tests.broker.harness import Client, Network, Sender, encode

ONCE: dict[str, object] = {"delivery-mode": "exactly-once"}


def attach(net: Network, name: str = "link", container: str = "worker") -> tuple[Client, Sender]:
    client = net.connect(container_id=container)
    return client, client.sender("q", name=name, properties=ONCE)


def send(sender: Sender, tag: bytes, body: bytes = b"x") -> OutgoingDelivery:
    delivery = sender.link.send(encode(Data(value=body)), tag=tag)
    sender.net.run()
    return delivery


@pytest.mark.spec("broker-2.3.8.1")
@pytest.mark.parametrize("how", ["lose", "detach", "steal"])
def test_a_resent_delivery_is_accepted_and_dropped(net: Network, how: str) -> None:
    client, sender = attach(net)
    send(sender, b"1", b"one")
    if how == "lose":
        client.lose()
    elif how == "detach":
        sender.close(closed=False)
    _, again = attach(net)
    resent = send(again, b"1", b"one")
    assert isinstance(resent.remote_state, Accepted) and resent.remote_settled
    send(again, b"2", b"two")
    assert net.connect().receiver("q", credit=9).bodies() == [b"one", b"two"]


@pytest.mark.spec("broker-2.3.8.1")
def test_the_outcome_may_get_lost_more_than_once(net: Network) -> None:
    for _ in range(3):
        client, sender = attach(net)
        send(sender, b"1")
        client.lose()
    assert net.queue("q").message_count() == 1


@pytest.mark.parametrize(
    ("name", "container"), [("other", "worker"), ("link", "other")], ids=["link", "container"]
)
def test_tags_are_those_of_one_link(net: Network, name: str, container: str) -> None:
    client, sender = attach(net)
    send(sender, b"1")
    client.lose()
    _, other = attach(net, name, container)
    send(other, b"1")
    assert net.queue("q").message_count() == 2


def test_a_closed_link_is_forgotten(net: Network) -> None:
    client, sender = attach(net)
    send(sender, b"1")
    sender.close()
    assert len(net.broker.shared.seen_tags) == 0
    send(client.sender("q", name="link", properties=ONCE), b"1")
    assert net.queue("q").message_count() == 2


def test_a_tag_is_free_again_on_the_same_attachment(net: Network) -> None:
    _, sender = attach(net)
    send(sender, b"1")
    send(sender, b"1")
    assert net.queue("q").message_count() == 2


def test_a_tag_the_sender_knows_to_be_settled_is_free(net: Network) -> None:
    """With receiver-settle-mode second the sender says that it has seen the outcome."""
    client = net.connect(container_id="worker")
    sender = client.sender("q", name="link", rcv=ReceiverSettleMode.SECOND, properties=ONCE)
    told, untold = send(sender, b"1"), send(sender, b"2")
    told.settle()
    net.run()
    assert not untold.settled
    client.lose()
    _, again = attach(net)
    send(again, b"1")
    send(again, b"2")
    assert net.queue("q").message_count() == 3


def test_an_unsettled_map_says_what_may_come_again(net: Network) -> None:
    client, sender = attach(net)
    send(sender, b"1")
    unsettled = send(sender, b"2")
    client.lose()
    client = net.connect(container_id="worker")
    link = client.session.attach_sender(
        "link", target=sender.link.target, properties=ONCE, unsettled={b"2": unsettled}
    )
    again = Sender(client, link)
    client.links[link] = again
    net.run()
    link.send(encode(Data(value=b"new")), tag=b"1")
    net.run()
    assert net.queue("q").message_count() == 3


def test_what_was_refused_is_tried_again(net: Network) -> None:
    client, sender = attach(net)
    refused = sender.link.send(b"\x00\x53\x70\xff", tag=b"1")
    net.run()
    assert isinstance(refused.remote_state, Rejected)
    client.lose()
    _, again = attach(net)
    send(again, b"1", b"good this time")
    assert net.queue("q").message_count() == 1


def test_the_window_covers_all_credit(net: Network) -> None:
    net.credit = 5000
    client, sender = attach(net)
    assert sender.link.credit == seen_tags.WINDOW
    for number in range(3000):
        sender.link.send(encode(Data(value=b"x")), tag=b"%d" % number)
        if sender.link.credit == 0:
            net.run()
    net.run()
    client.lose()
    _, again = attach(net)
    for number in range(3000 - seen_tags.WINDOW, 3000):
        again.link.send(encode(Data(value=b"x")), tag=b"%d" % number)
    net.run()
    assert net.queue("q").message_count() == 3000


def test_only_so_many_absent_links_are_remembered(net: Network) -> None:
    net.broker.shared.seen_tags.absent = 2
    for name in ("a", "b", "c"):
        client, sender = attach(net, name)
        send(sender, b"1")
        client.lose()
    assert len(net.broker.shared.seen_tags) == 2
    send(attach(net, "a")[1], b"1")
    assert net.queue("q").message_count() == 4


def lose_many(net: Network, count: int, **options: object) -> None:
    """Have a client attach and lose so many links that deliver once."""
    client = net.connect(**options)
    for n in range(count):
        client.sender("q", name=f"link {n}", properties=ONCE).close(closed=False)
    client.close()


def test_nobody_else_makes_the_broker_forget_a_link() -> None:
    """Neither in another virtual host, nor another user of the same one."""
    net = Network()
    net.restart(
        Config.model_validate(
            {
                "security": {"users": {"ann": "-", "eve": "-", "bob": "-"}},
                "rule": [{"who": "*", "may": "*", "where": "*"}],
                "virtual-host": [
                    {"name": "other", "rule": [{"who": "*", "may": "*", "where": "*"}]}
                ],
            }
        )
    )
    net.broker.shared.seen_tags.absent = 20
    net.broker.shared.seen_tags.links = 50

    def send_as_ann(number: int) -> None:
        client = net.connect(container_id="worker", sasl=Plain("ann", "-"))
        send(client.sender("q", name="link", properties=ONCE), b"%d" % number)
        client.lose()

    send_as_ann(1)
    lose_many(net, 200, sasl=Plain("bob", "-"), hostname="vhost:other")
    lose_many(net, 200, sasl=Plain("ann", "-"), hostname="vhost:other")
    lose_many(net, 200, sasl=Plain("eve", "-"))
    lose_many(net, 200, sasl=Plain("bob", "-"))
    send_as_ann(1)
    assert net.queue("q").message_count() == 1
    # Each has lost links of his own instead.
    assert len(net.broker.shared.seen_tags) == 20 + 20 + 20 + 20 + 1


def test_the_user_who_has_most_loses_most() -> None:
    net = Network()
    tags = net.broker.shared.seen_tags
    tags.tags = 30
    for user, links, each in (("few", 3, 3), ("many", 10, 10)):
        for n in range(links):
            client = net.connect(container_id="worker", sasl=Plain(user, "-"))
            sender = client.sender("q", name=f"link {n}", properties=ONCE)
            for number in range(each):
                send(sender, b"%d" % number)
            client.lose()
    before = net.queue("q").message_count()
    for n in range(3):
        client = net.connect(container_id="worker", sasl=Plain("few", "-"))
        send(client.sender("q", name=f"link {n}", properties=ONCE), b"0")
    assert net.queue("q").message_count() == before
    # Of the other only the last links are known, with as many tags as there is room for.
    assert len(tags) == 3 + 2


def test_other_links_remember_nothing(net: Network) -> None:
    client = net.connect(container_id="worker")
    send(client.sender("q", name="link"), b"1")
    client.lose()
    assert len(net.broker.shared.seen_tags) == 0
    send(net.connect(container_id="worker").sender("q", name="link"), b"1")
    assert net.queue("q").message_count() == 2
