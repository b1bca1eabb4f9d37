"""Recognising brokers by their open."""

from __future__ import annotations

import pytest

from ferrymq.peers import KNOWN, Peer, recognise
from ferrymq_types.transport import Open


def opened(product: object = None, version: object = None, container_id: str = "c") -> Open:
    given = {"product": product, "version": version}
    properties = {name: value for name, value in given.items() if value is not None}
    return Open(container_id=container_id, properties=properties or None)


@pytest.mark.parametrize("version", ["4.0.5", "4", "4.1.0-rc.1", "5.0"])
def test_rabbitmq_from_4_on(version: str) -> None:
    peer = recognise(opened("RabbitMQ", version))
    assert (peer.name, peer.version) == ("RabbitMQ", version)
    assert peer.ends_sessions and not peer.cancels_with_session and not peer.resumes


@pytest.mark.parametrize("version", ["3.10.8", "3.13.7", "3", None])
def test_rabbitmq_before_4(version: str | None) -> None:
    peer = recognise(opened("RabbitMQ", version))
    assert peer.ends_sessions and peer.cancels_with_session and not peer.resumes


@pytest.mark.parametrize(
    "open", [opened(), opened("Other", "4.0"), opened(7, 8), opened("rabbitmq", "4.0.5")]
)
def test_others_are_as_any_peer(open: Open) -> None:
    peer = recognise(open)
    assert peer == Peer(peer.name, peer.version)
    assert not peer.ends_sessions and peer.resumes


def test_a_container_id_that_others_may_have_is_not_enough() -> None:
    assert recognise(Open(container_id="broker")).removes_when_sent
    for other in (
        Open(container_id="broker", max_frame_size=65536),
        Open(container_id="broker", offered_capabilities=["ANONYMOUS-RELAY"]),
        opened("Other", "1", container_id="broker"),
    ):
        assert not recognise(other).removes_when_sent


def test_errors_say_what_the_broker_lacks() -> None:
    peer = recognise(opened("RabbitMQ", "4.0.5"))
    assert peer.lack("Dynamic sources not supported") == ": RabbitMQ 4.0.5 has no dynamic nodes"
    assert peer.lack("Transactions not supported") == ": RabbitMQ 4.0.5 has no transactions"
    assert peer.lack("no queue 'nope'") == peer.lack(None) == ""
    assert Peer().lack("Transactions not supported") == ""
    assert str(Peer()) == "the peer"


def test_each_row_says_where_it_comes_from() -> None:
    for known in KNOWN:
        assert known.source and known.facts.name
        assert known.product or known.container_id
