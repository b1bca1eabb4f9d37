"""Pairs of links to a node that answers, frame by frame (Link Pairing 1.0, AMQP 1.0 §2.7.3)."""

from __future__ import annotations

import pytest

from tests.raw.answers import Answer, Composite
from tests.raw.client import Client
from tests.raw.frames import (
    AMQP_HEADER,
    COORDINATOR,
    attach_frame,
    begin_frame,
    detach_frame,
    flow_frame,
    open_frame,
    source,
    target,
    transfer_frame,
)
from tests.raw.process import Broker
from tests.raw.values import (
    FALSE,
    NULL,
    TRUE,
    binary,
    composite,
    described,
    mapping,
    string,
    symbol,
    uint,
    ulong,
)

NODE = string("$management")
PAIRED = mapping(symbol("paired"), TRUE)
MINE = string("mine")


def sending_half(channel: int = 0, handle: int = 0, name: str = "pair") -> bytes:
    """Encode the attach of the half that requests go out on."""
    return attach_frame(
        name, handle, source=source(MINE), target=target(NODE), properties=PAIRED, channel=channel
    )


def receiving_half(
    channel: int = 0, handle: int = 1, name: str = "pair", size: int | None = None
) -> bytes:
    """Encode the attach of the half that responses come in on, and the credit for them."""
    return attach_frame(
        name, handle, receiver=True, source=source(NODE), target=target(MINE), properties=PAIRED,
        channel=channel, max_message_size=NULL if size is None else ulong(size),
    ) + flow_frame(uint(handle), uint(10), uint(0), channel=channel)  # fmt: skip


def request(
    reply_to: bytes, channel: int = 0, tag: bytes = b"1", operation: str = "GET-TYPES"
) -> bytes:
    """Encode a request that every management node answers."""
    about = [string("id"), NULL, NULL, NULL, reply_to]
    payload = (
        composite(0x73, about)
        + described(0x74, mapping(string("operation"), string(operation)))
        + described(0x77, NULL)
    )
    return transfer_frame(payload, 0, uint(int(tag) - 1), binary(tag), channel=channel)


def until(peer: Client, *names: str) -> dict[str, Answer]:
    """Read on until there is an answer of each name; the last of each."""
    found: dict[str, Answer] = {}
    while not all(name in found for name in names):
        answer = peer.read()
        assert answer is not None, "the broker has hung up"
        found[answer.name] = answer
    return found


def state(disposition: Answer) -> Composite:
    """The outcome that a disposition states."""
    found = disposition.field(4)
    assert isinstance(found, Composite)
    return found


@pytest.mark.spec("pairing-2.1")
def test_halves_on_two_sessions_are_a_pair(peer: Client) -> None:
    peer.send(begin_frame(channel=1), sending_half(0))
    until(peer, "begin", "attach")
    peer.send(receiving_half(1))
    assert peer.expect("attach", "flow").field(13) == {"paired": True}
    peer.send(request(string("$me")))
    answers = until(peer, "transfer", "disposition")
    assert state(answers["disposition"]).name == "accepted"
    assert answers["transfer"].channel == 1
    assert b"OK" in answers["transfer"].payload


@pytest.mark.spec("pairing-2.1")
def test_halves_on_two_connections_of_a_container_are_a_pair(broker: Broker, peer: Client) -> None:
    with Client(broker.port) as other, Client(broker.port) as stranger:
        for client, container in ((other, "attacker"), (stranger, "stranger")):
            client.open(open_frame(string(container))).send(begin_frame())
            client.expect("begin")
            client.send(receiving_half())
            client.expect("attach", "flow")
        peer.send(sending_half())
        peer.expect("attach", "flow")
        peer.send(request(string("$me")))
        assert state(until(peer, "disposition")["disposition"]).name == "accepted"
        other.expect("transfer", "flow")
        assert not [answer for answer in stranger.come() if answer.name == "transfer"]


@pytest.mark.spec("pairing-2.1")
@pytest.mark.parametrize("reply_to", ["mine", "pair"])
def test_a_reply_to_of_the_pairs_own_address_or_name_is_that_of_a_node(
    peer: Client, reply_to: str
) -> None:
    peer.send(sending_half(), receiving_half())
    until(peer, "attach")
    peer.send(request(string(reply_to)))
    # There is no such node, and the pair does not stand in for it.
    assert peer.verdict()[:2] == ("delivery", "amqp:not-found")
    # As soon as there is one, it gets the response.
    peer.receiver(reply_to, name="elsewhere", handle=2)
    peer.send(request(string(reply_to), tag=b"2"))
    answers = until(peer, "transfer", "disposition")
    assert answers["transfer"].field(0) == 2


@pytest.mark.spec("pairing-2.2.1")
def test_a_coordinator_is_no_half_of_a_pair(peer: Client) -> None:
    where = composite(COORDINATOR, [])
    peer.send(attach_frame("pair", 0, source=source(MINE), target=where, properties=PAIRED))
    assert peer.expect("attach", "flow").field(6) is None
    assert peer.expect("detach", "flow").condition == "amqp:not-implemented"


@pytest.mark.spec("2.7.3")
def test_a_response_that_its_link_does_not_take_is_an_error(peer: Client) -> None:
    peer.send(sending_half(), receiving_half(size=300))
    until(peer, "attach")
    peer.send(request(string("$me"), operation="GET-OPERATIONS"))
    assert b"the max-message-size of its link is 300" in until(peer, "transfer")["transfer"].payload


@pytest.mark.spec("2.7.3")
def test_a_link_that_takes_no_response_at_all_costs_the_request(peer: Client) -> None:
    peer.send(sending_half(), receiving_half(size=30))
    until(peer, "attach")
    peer.send(request(string("$me")))
    assert peer.verdict()[:2] == ("delivery", "amqp:link:message-size-exceeded")


@pytest.mark.spec("pairing-2.1.1")
def test_the_open_says_that_pairs_are_supported_and_asks_for_nothing(broker: Broker) -> None:
    with Client(broker.port) as client:
        client.send(AMQP_HEADER, open_frame())
        client.take(8)
        opened = client.expect("open")
        offered = opened.field(7)
        assert isinstance(offered, list) and "LINK_PAIR_V1_0" in offered
        assert opened.field(8) is None
        client.close()


@pytest.mark.spec("pairing-2.1.1", "pairing-2.2.1")
def test_a_node_that_does_not_answer_is_no_half_of_a_pair(peer: Client, address: str) -> None:
    where = target(string(address))
    peer.send(attach_frame("pair", 0, source=source(MINE), target=where, properties=PAIRED))
    assert peer.expect("attach").field(6) is None
    assert peer.expect("detach").condition == "amqp:not-implemented"


@pytest.mark.spec("pairing-2.2.1")
def test_a_half_that_does_not_mirror_the_other_is_detached(peer: Client) -> None:
    peer.send(sending_half())
    assert peer.expect("attach").field(13) == {"paired": True}
    peer.expect("flow")
    other = target(string("other"))
    peer.send(attach_frame("pair", 1, True, source(NODE), other, properties=PAIRED))
    assert peer.expect("attach").field(5) is None
    detach = peer.expect("detach")
    error = detach.error()
    assert detach.field(1) is True and error is not None
    assert error[0] == "amqp:precondition-failed"
    # The half that was there can still have its counterpart.
    peer.send(detach_frame(1), receiving_half(), request(string("$me")))
    assert b"OK" in until(peer, "transfer")["transfer"].payload


@pytest.mark.spec("pairing-2.2.1")
@pytest.mark.parametrize("value", [FALSE, uint(1), string("true"), NULL])
def test_any_other_value_of_paired_makes_an_ordinary_link(peer: Client, value: bytes) -> None:
    properties = mapping(symbol("paired"), value)
    peer.send(
        attach_frame("pair", 0, source=source(MINE), target=target(NODE), properties=properties)
    )
    assert peer.expect("attach").field(13) in (None, {})
    peer.send(attach_frame("pair", 1, True, source(NODE), target(MINE), properties=properties))
    assert peer.expect("attach", "flow").field(13) in (None, {})
    peer.send(flow_frame(uint(1), uint(10), uint(0)), request(string("$me")))
    answer = peer.expect("disposition", "flow")
    assert state(answer).name == "rejected"


@pytest.mark.spec("pairing-2.2.1")
@pytest.mark.parametrize("closed", [False, True], ids=["detached", "closed"])
def test_a_half_that_is_attached_again_is_paired_again(peer: Client, closed: bool) -> None:
    peer.send(sending_half(), receiving_half())
    assert [peer.expect("attach", "flow").field(13) for _ in range(2)] == [{"paired": True}] * 2
    peer.send(detach_frame(1, closed))
    peer.expect("detach", "flow")
    peer.send(receiving_half())
    assert peer.expect("attach", "flow").field(13) == {"paired": True}
    peer.send(request(string("$me")))
    assert b"OK" in until(peer, "transfer")["transfer"].payload
