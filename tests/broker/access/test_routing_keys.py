"""Rules for the routing keys of an exchange are about the key that routes, wherever it stands."""

from __future__ import annotations

import pytest

from ferrymq.engine.delivery import OutgoingDelivery
from ferrymq_types.messaging import Accepted, Data, MessageAnnotations, Properties
from ferrymq_types.transactions import TransactionalState
from ferrymq_types.unions import Section
from tests.broker.access.guarded import UNAUTHORIZED, is_open, lacks, rejected, user
from tests.broker.harness import Network
from tests.broker.transactions.kit import Controller, post_sections

RULES = """
[[queue]]
name = "all"

[[exchange]]
name = "ex"
routing = "topic"

[[exchange.binding]]
key = "#"
to = "all"

[[alias]]
name = "way"
to = "ex"

[[rule]]
who = "user:ann"
may-not = "send"
where = "ex::secret.*"

[[rule]]
who = "user:ann"
may = "send"
where = "ex"

[[rule]]
who = "user:root"
may = "*"
where = "*"
"""
KEYS = pytest.mark.parametrize(
    ("key", "allowed"), [("secret.a", False), ("public.a", True), ("secret", True)]
)


def sections(key: str, to: str | None = None, how: str = "subject") -> list[Section]:
    """A message with a routing key."""
    if how == "subject":
        return [Properties(to=to, subject=key), Data(value=b"x")]
    annotations = MessageAnnotations(value={"x-opt-routing-key": key})
    return [annotations, Properties(to=to), Data(value=b"x")]


def check(net: Network, delivery: OutgoingDelivery, key: str, allowed: bool) -> None:
    """It was routed, or rejected with the key in the reason."""
    if allowed:
        assert delivery.remote_state == Accepted()
    else:
        assert rejected(delivery) == UNAUTHORIZED
        error = delivery.remote_state.error  # type: ignore[union-attr]
        assert f"'ex::{key}'" in str(error)
    assert net.queue("all").message_count() == allowed


@KEYS
@pytest.mark.parametrize("how", ["subject", "annotation"])
@pytest.mark.parametrize("address", ["ex", "way"])
def test_on_a_link_to_the_exchange(
    net: Network, address: str, how: str, key: str, allowed: bool
) -> None:
    sender = user(net, "ann").sender(address)
    check(net, sender.send_sections(*sections(key, how=how)), key, allowed)
    # It costs one message, not the link.
    assert is_open(sender)
    assert sender.send_sections(*sections("news")).remote_state == Accepted()


@KEYS
@pytest.mark.parametrize("to", ["ex", "way"])
def test_over_a_link_without_an_address(net: Network, to: str, key: str, allowed: bool) -> None:
    sender = user(net, "ann").sender(None)
    check(net, sender.send_sections(*sections(key, to)), key, allowed)


@KEYS
@pytest.mark.parametrize("address", ["ex", None])
def test_in_a_transaction(net: Network, address: str | None, key: str, allowed: bool) -> None:
    ann = user(net, "ann")
    control, sender = Controller(ann), ann.sender(address)
    txn = control.declare()
    posted = post_sections(sender, txn, *sections(key, None if address else "ex"))
    state = posted.remote_state
    assert isinstance(state, TransactionalState)
    if allowed:
        control.commit(txn)
        assert net.queue("all").message_count() == 1
    else:
        posted.remote_state = state.outcome
        check(net, posted, key, False)
        assert UNAUTHORIZED in control.refused(txn)


def test_in_the_address(net: Network) -> None:
    ann = user(net, "ann")
    assert lacks(ann.sender("ex::secret.a")) == "send at 'ex::secret.a'"
    assert is_open(ann.sender("ex::public.a"))


def test_who_may_do_everything_is_not_stopped_by_rules_for_others(net: Network) -> None:
    sender = user(net, "root").sender("ex")
    assert sender.send_sections(*sections("secret.a")).remote_state == Accepted()
