"""Messages that name their address themselves: each of them is asked about."""

from __future__ import annotations

import pytest

from ferrymq_types.messaging import Accepted, Data, Properties, Source
from ferrymq_types.transactions import TransactionalState
from tests.broker.access.guarded import (
    UNAUTHORIZED,
    is_open,
    rejected,
    send_to,
    user,
)
from tests.broker.harness import Network
from tests.broker.transactions.kit import ROLLBACK, Controller, post_sections

RULES = """
[[queue]]
name = "open"

[[queue]]
name = "closed"

[[exchange]]
name = "fork"
routing = "direct"

[[exchange.binding]]
key = "a"
to = "closed"

[[alias]]
name = "alias"
to = "closed"

[[alias]]
name = "good"
to = "open"

[[rule]]
who = "user:ann"
may = "send"
where = ["open", "new.*", "fork::a"]

[[rule]]
who = "user:root"
may = "*"
where = "*"
"""


def count(net: Network, address: str) -> int:
    return int(net.space.nodes[address].message_count())


@pytest.mark.parametrize("to", ["closed", "missing", "alias", "$management", "fork", "fork::b"])
def test_where_somebody_may_not_send_his_message_is_rejected(net: Network, to: str) -> None:
    sender = user(net, "ann").sender(None)
    before = set(net.space.nodes)
    assert rejected(send_to(sender, to)) == UNAUTHORIZED
    assert set(net.space.nodes) == before and count(net, "closed") == 0
    # It cost one message, not the link.
    assert is_open(sender)
    assert send_to(sender, "good").remote_state == Accepted()
    assert send_to(sender, "open").remote_state == Accepted()
    assert count(net, "open") == 2


def test_rights_are_asked_for_where_a_message_is_sent_not_where_it_ends(net: Network) -> None:
    sender = user(net, "ann").sender(None)
    assert send_to(sender, "fork::a").remote_state == Accepted()
    assert count(net, "closed") == 1


def test_a_message_makes_no_node_that_its_sender_may_not_make(net: Network) -> None:
    assert rejected(send_to(user(net, "ann").sender(None), "new.q")) == UNAUTHORIZED
    assert "new.q" not in net.space.nodes
    assert send_to(user(net, "root").sender(None), "new.q").remote_state == Accepted()
    assert send_to(user(net, "ann").sender(None), "new.q").remote_state == Accepted()


def test_a_message_that_was_settled_costs_the_link(net: Network) -> None:
    sender = user(net, "ann").sender(None)
    sender.send_sections(Properties(to="closed"), Data(value=b"x"), settled=True)
    assert sender.detached and sender.error is not None
    assert sender.error.condition == UNAUTHORIZED
    assert count(net, "closed") == 0


@pytest.mark.spec("4.4.1")
def test_it_is_the_same_in_a_transaction(net: Network) -> None:
    ann = user(net, "ann")
    control, sender = Controller(ann), ann.sender(None)
    txn = control.declare()
    good = post_sections(sender, txn, Properties(to="open"), Data(value=b"x"))
    bad = post_sections(sender, txn, Properties(to="alias"), Data(value=b"x"))
    state = bad.remote_state
    assert isinstance(state, TransactionalState)
    bad.remote_state = state.outcome
    assert rejected(bad) == UNAUTHORIZED
    refused = control.refused(txn)
    assert refused.startswith(ROLLBACK) and UNAUTHORIZED in refused
    assert isinstance(good.remote_state, TransactionalState)
    assert count(net, "open") == count(net, "closed") == 0


def test_what_was_refused_once_is_refused_when_it_comes_again(net: Network) -> None:
    ann = user(net, "ann", container_id="box")
    sender = ann.sender(None, name="link", source=Source(address="here"))
    assert rejected(send_to(sender, "closed")) == UNAUTHORIZED
    sender.close(closed=False)
    again = ann.sender(None, name="link", source=Source(address="here"))
    assert rejected(send_to(again, "closed")) == UNAUTHORIZED
    assert count(net, "closed") == 0


def test_the_rules_are_asked_once_for_an_address(net: Network) -> None:
    ann = user(net, "ann")
    sender = ann.sender(None)
    assert send_to(sender, "open").remote_state == Accepted()
    # From now on the rules would give nothing.
    ann.handler.client.access._rules.rules.clear()
    assert send_to(sender, "open").remote_state == Accepted()
    assert rejected(send_to(sender, "fork::a")) == UNAUTHORIZED
