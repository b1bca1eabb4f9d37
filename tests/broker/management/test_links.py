"""Requests and responses over every pair of links that clients use."""

from __future__ import annotations

import pytest

from ferrymq.engine.pairing import paired_properties
from ferrymq.engine.session import Session
from ferrymq_broker.nodes.service import PENDING
from ferrymq_types.messaging import (
    Accepted,
    ApplicationProperties,
    Properties,
    Rejected,
    Source,
    Target,
)
from ferrymq_types.transport import SenderSettleMode
from tests.broker.harness import Client, Network, Receiver, Sender
from tests.broker.management.asker import Answer, read_answer

NODE = "$management"
READ = ApplicationProperties({"operation": "READ", "type": "broker", "name": "broker"})


def sender_of(
    client: Client, name: str, mine: str | None = None, *, paired: bool = False
) -> Sender:
    link = client.session.attach_sender(
        name,
        source=Source(address=mine),
        target=Target(address=NODE),
        properties=paired_properties() if paired else None,
    )
    sender = Sender(client, link)
    client.links[link] = sender
    client.net.run()
    return sender


def receiver_of(
    client: Client,
    name: str,
    mine: str | None = None,
    *,
    paired: bool = False,
    credit: int = 10,
    session: Session | None = None,
    settled: bool = False,
) -> Receiver:
    link = (session or client.session).attach_receiver(
        name,
        source=Source(address=NODE),
        target=Target(address=mine),
        snd_settle_mode=SenderSettleMode.SETTLED if settled else SenderSettleMode.MIXED,
        properties=paired_properties() if paired else None,
    )
    receiver = Receiver(client, link)
    client.links[link] = receiver
    client.net.run()
    if credit:
        receiver.credit(credit)
    return receiver


def ask(sender: Sender, reply_to: str | None, id: str = "1", *, settled: bool = False) -> object:
    sent = sender.send_sections(Properties(message_id=id, reply_to=reply_to), READ, settled=settled)
    return sent.remote_state


def answers(receiver: Receiver) -> list[Answer]:
    found = [read_answer(delivery.payload) for delivery in receiver.deliveries]
    receiver.take()
    return found


# -- a receiver on the node itself ---------------------------------------------------------


def test_by_the_target_address_of_the_response_link(net: Network) -> None:
    client = net.connect()
    receiver = receiver_of(client, "responses", "my-own-address")
    other = receiver_of(client, "my-own-address", "elsewhere")
    ask(sender_of(client, "requests"), "my-own-address")
    (answer,) = answers(receiver)
    assert (answer.status, answer.about.to) == (200, "my-own-address")
    assert answers(other) == []


def test_by_the_name_of_the_response_link(net: Network) -> None:
    client = net.connect()
    receiver = receiver_of(client, "the-name")
    other = receiver_of(client, "another")
    ask(sender_of(client, "requests"), "the-name")
    assert [answer.status for answer in answers(receiver)] == [200]
    assert answers(other) == []


def test_without_reply_to_there_is_only_one_place(net: Network) -> None:
    client = net.connect()
    receiver = receiver_of(client, "responses", "here")
    ask(sender_of(client, "requests"), None)
    (answer,) = answers(receiver)
    assert (answer.status, answer.about.to) == (200, None)


def test_without_reply_to_the_link_of_the_session_counts(net: Network) -> None:
    client = net.connect()
    away = receiver_of(client, "away", session=client.begin())
    sender = sender_of(client, "requests")
    ask(sender, None)
    assert len(answers(away)) == 1
    near = receiver_of(client, "near")
    ask(sender, None)
    assert (len(answers(near)), answers(away)) == (1, [])


def test_of_several_links_the_one_of_the_same_name(net: Network) -> None:
    client = net.connect()
    one, two = receiver_of(client, "one"), receiver_of(client, "two")
    ask(sender_of(client, "two"), None)
    assert (answers(one), len(answers(two))) == ([], 1)
    state = ask(sender_of(client, "three"), None)
    assert isinstance(state, Rejected) and state.error is not None
    assert state.error.condition == "amqp:precondition-failed"


def test_nobody_gets_the_responses_of_another_connection(net: Network) -> None:
    eve, client = net.connect(), net.connect()
    spy = receiver_of(eve, "responses", "address")
    for reply_to in ("responses", "address"):
        assert isinstance(ask(sender_of(client, f"requests-{reply_to}"), reply_to), Rejected)
    mine = receiver_of(client, "responses", "address")
    for id, reply_to in enumerate(("responses", "address", None)):
        ask(sender_of(client, f"more-{id}"), reply_to)
    assert len(answers(mine)) == 3
    assert spy.deliveries == []


def test_responses_that_are_settled_from_the_start(net: Network) -> None:
    client = net.connect()
    receiver = receiver_of(client, "responses", settled=True)
    ask(sender_of(client, "requests"), "responses", settled=True)
    assert receiver.deliveries[0].remote_settled
    assert len(answers(receiver)) == 1


def test_responses_wait_for_credit(net: Network) -> None:
    client = net.connect()
    receiver = receiver_of(client, "responses", credit=0)
    sender = sender_of(client, "requests")
    for id in ("1", "2"):
        ask(sender, "responses", id)
    assert receiver.deliveries == []
    receiver.credit(5)
    assert [answer.about.correlation_id for answer in answers(receiver)] == ["1", "2"]


def test_who_does_not_listen_is_not_answered_for_ever(net: Network) -> None:
    client = net.connect()
    receiver = receiver_of(client, "responses", credit=0)
    sender = sender_of(client, "requests")
    for _ in range(PENDING):
        assert isinstance(ask(sender, "responses"), Accepted)
    state = ask(sender, "responses")
    assert isinstance(state, Rejected) and state.error is not None
    assert state.error.condition == "amqp:resource-limit-exceeded"
    receiver.credit(1)
    receiver.settle(Accepted())
    assert isinstance(ask(sender, "responses"), Accepted)


def test_responses_go_with_their_link(net: Network) -> None:
    client = net.connect()
    receiver = receiver_of(client, "responses", credit=0)
    sender = sender_of(client, "requests")
    ask(sender, "responses")
    assert net.broker.agenda.held > 0
    receiver.close()
    assert net.broker.agenda.held == 0
    again = receiver_of(client, "responses")
    assert again.deliveries == []
    ask(sender, "responses", "2")
    assert [answer.about.correlation_id for answer in answers(again)] == ["2"]


def test_all_is_forgotten_with_the_connection(net: Network) -> None:
    service = net.space.nodes[NODE]
    client = net.connect()
    receiver_of(client, "responses", credit=0)
    ask(sender_of(client, "requests"), "responses")
    assert (service.links, service.message_count()) == (2, 1)
    client.lose()
    assert (service.links, service.message_count()) == (0, 0)
    assert net.broker.agenda.held == 0
    described = service.describe()
    assert (described["requests"], described["refused"], described["links"]) == (1, 0, 0)


def test_responses_cannot_be_browsed(net: Network) -> None:
    receiver = net.connect().receiver(NODE, mode="copy")
    assert receiver.detached and receiver.error is not None
    assert receiver.error.condition == "amqp:not-implemented"


def test_the_node_has_no_parts(net: Network) -> None:
    client = net.connect()
    for link in (client.sender(f"{NODE}::part"), client.receiver(f"{NODE}::part")):
        assert link.detached and link.error is not None
        assert link.error.condition == "amqp:not-found"


# -- pairs ---------------------------------------------------------------------------------


@pytest.mark.spec("pairing-2.1")
@pytest.mark.parametrize("reply_to", ["$me", None])
@pytest.mark.parametrize("responses_first", [True, False])
def test_a_pair_answers_over_itself(
    net: Network, reply_to: str | None, responses_first: bool
) -> None:
    client = net.connect()
    decoy = receiver_of(client, "decoy", "decoy")
    if responses_first:
        receiver = receiver_of(client, "pair", "mine", paired=True)
        sender = sender_of(client, "pair", "mine", paired=True)
    else:
        sender = sender_of(client, "pair", "mine", paired=True)
        receiver = receiver_of(client, "pair", "mine", paired=True)
    for link in (sender.link, receiver.link):
        assert link.remote_attach is not None
        assert link.remote_attach.properties == {"paired": True}
    ask(sender, reply_to)
    (answer,) = answers(receiver)
    assert (answer.status, answer.about.to) == (200, "$me")
    assert answer.about.correlation_id == "1"
    assert answers(decoy) == []


@pytest.mark.spec("pairing-2.1")
def test_another_reply_to_goes_elsewhere(net: Network) -> None:
    net.declare("elsewhere")
    client = net.connect()
    receiver = receiver_of(client, "pair", "mine", paired=True)
    sender = sender_of(client, "pair", "mine", paired=True)
    ask(sender, "elsewhere")
    assert answers(receiver) == []
    assert net.queue("elsewhere").message_count() == 1


@pytest.mark.spec("pairing-2.1")
def test_half_a_pair_is_not_answered(net: Network) -> None:
    client = net.connect()
    receiver_of(client, "pair", "mine")
    sender = sender_of(client, "other", "mine", paired=True)
    state = ask(sender, "$me")
    assert isinstance(state, Rejected) and state.error is not None
    assert state.error.condition == "amqp:precondition-failed"


@pytest.mark.spec("pairing-2.1")
def test_pairs_do_not_get_each_others_responses(net: Network) -> None:
    clients = [net.connect(), net.connect()]
    receivers = [receiver_of(client, "pair", "mine", paired=True) for client in clients]
    senders = [sender_of(client, "pair", "mine", paired=True) for client in clients]
    for number, sender in enumerate(senders):
        ask(sender, "$me", f"from-{number}")
    for number, receiver in enumerate(receivers):
        (answer,) = answers(receiver)
        assert answer.about.correlation_id == f"from-{number}"


def test_one_name_in_both_directions_without_a_pair(net: Network) -> None:
    """Some clients call both links alike and do not call them a pair."""
    client = net.connect()
    receiver = receiver_of(client, "both", "mine")
    sender = sender_of(client, "both", "mine")
    ask(sender, "mine")
    ask(sender, None)
    assert len(answers(receiver)) == 2


def test_links_are_told_when_the_node_goes(net: Network) -> None:
    client = net.connect()
    receiver = receiver_of(client, "responses")
    sender = sender_of(client, "requests")
    net.space.remove(net.space.nodes[NODE])
    net.finish()
    for link in (sender, receiver):
        assert link.detached and link.error is not None
        assert link.error.condition == "amqp:resource-deleted"
