"""Flows of a receiver: one for all changes of a pass, and what crosses it (AMQP 1.0 §2.6.7)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ferrymq.engine.session import Session
from ferrymq_types.transport import Begin, Detach, Flow, Transfer
from tests.support.scenes import (
    begin_script,
    open_script,
    peer_begin,
    receiver_script,
    sender_script,
    transfer,
)
from tests.support.script import Script, condition, like


@pytest.fixture
def client(script: Callable[..., Script]) -> Script:
    return open_script(script(initiator=True))


def begun(client: Script) -> Session:
    session = client.engine.begin()
    client << Begin
    client >> peer_begin(0)
    client.events()
    return session


@pytest.mark.spec("2.6.7")
def test_one_flow_states_all_changes_of_a_pass(play, session):
    link = receiver_script(play, session, credit=2)
    play >> transfer(0, 0) >> transfer(0, 1)
    link.set_credit(1)
    link.set_credit(2)
    play << like(Flow, delivery_count=2, link_credit=2)
    play.quiet()
    link.set_credit(3)
    play << like(Flow, delivery_count=2, link_credit=3)


def test_links_have_a_flow_each(play, session):
    first = receiver_script(play, session, name="a", credit=2)
    second = receiver_script(play, session, name="b", credit=2)
    for link in (first, second, first):
        link.set_credit(5)
    play << like(Flow, handle=first.handle, link_credit=5)
    play << like(Flow, handle=second.handle, link_credit=5)
    play.quiet()


def test_a_drain_is_not_joined_with_later_credit(play, session):
    link = receiver_script(play, session, credit=2)
    link.set_credit(4)
    link.drain_credit()
    link.set_credit(6)
    play << like(Flow, link_credit=4, drain=True) << like(Flow, link_credit=6, drain=False)
    play.quiet()


def test_credit_comes_before_a_transfer_that_is_sent_later(play, session):
    sender = sender_script(play, session, name="out")
    link = receiver_script(play, session, credit=2)
    link.set_credit(7)
    sender.send(b"request")
    play << like(Flow, link_credit=7) << like(Transfer)


def test_credit_comes_before_the_end_of_the_link(play, session):
    link = receiver_script(play, session, credit=2)
    link.set_credit(7)
    link.detach(closed=True)
    play << like(Flow, link_credit=7) << like(Detach)


@pytest.mark.spec("2.6.7")
def test_a_client_takes_what_was_under_way_in_addition(client):
    """RabbitMQ 3.10 gives its queue the credit of each flow anew."""
    session = begun(client)
    link = receiver_script(client, session, credit=2)
    client >> transfer(0, 0)
    # One delivery may be under way.
    link.set_credit(2)
    client << like(Flow, delivery_count=1, link_credit=2)
    client >> transfer(0, 1) >> transfer(0, 2) >> transfer(0, 3)
    assert client.names() == ["DeliveryReceived"] * 4
    assert link.credit == 0 and link.delivery_count == 4
    client >> transfer(0, 4)
    client << like(Detach, closed=True, error=condition("amqp:link:transfer-limit-exceeded"))


def test_a_client_takes_what_two_flows_in_a_row_have_crossed(client):
    session = begun(client)
    link = receiver_script(client, session, credit=3)
    client >> transfer(0, 0)
    # 1 and 2 are under way. The peer sends three more.
    link.set_credit(3)
    client << like(Flow, delivery_count=1, link_credit=3)
    client >> transfer(0, 1) >> transfer(0, 2)
    # 3, 4 and 5 are under way. The peer sends three more.
    link.set_credit(3)
    client << like(Flow, delivery_count=3, link_credit=3)
    for id in range(3, 9):
        client >> transfer(0, id)
    assert client.names() == ["DeliveryReceived"] * 9
    client >> transfer(0, 9)
    client << like(Detach, closed=True, error=condition("amqp:link:transfer-limit-exceeded"))


@pytest.mark.parametrize("credit", [0, 1])
def test_no_more_than_eight_times_the_new_credit_comes_in_addition(client, credit):
    session = begun(client)
    link = receiver_script(client, session, credit=20)
    link.set_credit(credit)
    client << like(Flow, link_credit=credit)
    most = 20 + 8 * credit
    for id in range(most):
        client >> transfer(0, id)
    assert client.names() == ["DeliveryReceived"] * most
    client >> transfer(0, most)
    client << like(Detach, closed=True, error=condition("amqp:link:transfer-limit-exceeded"))


def test_nothing_comes_in_addition_if_nothing_was_under_way(client):
    session = begun(client)
    link = receiver_script(client, session, credit=1)
    client >> transfer(0, 0)
    link.set_credit(1)
    client << like(Flow, link_credit=1)
    client >> transfer(0, 1) >> transfer(0, 2)
    client << like(Detach, closed=True, error=condition("amqp:link:transfer-limit-exceeded"))


def test_a_server_holds_its_clients_to_the_credit(script):
    server = open_script(script(initiator=False))
    link = receiver_script(server, begin_script(server), credit=2)
    link.set_credit(2)
    server << like(Flow, link_credit=2)
    for id in range(3):
        server >> transfer(0, id)
    server << like(Detach, closed=True, error=condition("amqp:link:transfer-limit-exceeded"))
