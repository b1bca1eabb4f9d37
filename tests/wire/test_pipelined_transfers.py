"""Transfers in the flight of their attach (AMQP 1.0 §2.6.3, Link Pairing 1.0 §2.2.2)."""

from __future__ import annotations

import socket

import pytest

from ferrymq import Message
from ferrymq.engine import Connection, ConnectionSettings
from ferrymq.engine.events import (
    DeliveryReceived,
    DetachReceived,
    EndReceived,
    LinkFailed,
    Terminated,
)
from ferrymq.engine.link_pair import attach_pair
from ferrymq.engine.pairing import LINK_PAIR, ME
from ferrymq_types.messaging import Properties
from tests.raw.answers import Answer
from tests.raw.client import Client
from tests.raw.frames import (
    AMQP_HEADER,
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
    NULL,
    TRUE,
    binary,
    data_section,
    described,
    mapping,
    sequence,
    string,
    symbol,
    uint,
    ulong,
)
from tests.raw.wire import PATIENCE
from tests.wire.control import (
    Control,
    discharge_body,
    exchange,
    in_transaction,
    named,
    outcomes_by_id,
    waiting,
)

ROLLBACK = "amqp:transaction:rollback"


CONFIG = """
[[queue]]
name = "full"
max-length = 1
overflow = "block"

[[queue]]
pattern = "small*"
max-length = 3
overflow = "block"

[limits]
credit = 20
"""


def attach(address: str, handle: int = 0, snd: bytes = NULL) -> bytes:
    """Encode the attach of a sender."""
    where = target(string(address))
    return attach_frame(f"s{handle}", handle, source=source(), target=where, snd_settle_mode=snd)


def messages(count: int, settled: bytes = NULL) -> bytes:
    """Encode so many messages on handle 0."""
    return b"".join(
        transfer_frame(data_section(b"%d" % n), 0, uint(n), binary(b"%d" % n), settled=settled)
        for n in range(count)
    )


@pytest.mark.spec("2.6.3")
@pytest.mark.parametrize("settled", [NULL, TRUE], ids=["unsettled", "settled"])
def test_transfers_behind_their_attach_are_taken(
    broker: Broker, peer: Client, address: str, settled: bytes
) -> None:
    answers = exchange(peer, attach(address), messages(5, settled))
    assert len(named(answers, "attach")) == 1 and not named(answers, "detach")
    if settled == NULL:
        states = outcomes_by_id(answers)
        assert [states[n].name for n in range(5)] == ["accepted"] * 5
    assert len(waiting(broker.port, address)) == 5


@pytest.mark.spec("2.4.1")
def test_transfers_in_the_flight_of_the_open_are_taken(broker: Broker, address: str) -> None:
    with Client(broker.port) as client:
        client.send(AMQP_HEADER, open_frame(), begin_frame(), attach(address), messages(3))
        assert client.take(8) == AMQP_HEADER
        client.expect("open")
        client.expect("begin")
        assert not named(exchange(client), "detach")
    assert len(waiting(broker.port, address)) == 3


@pytest.mark.spec("2.6.7")
def test_only_the_link_pays_for_transfers_beyond_the_credit_that_the_attach_grants(
    broker: Broker, peer: Client, address: str
) -> None:
    answers = exchange(peer, attach(address, 1), attach("small"), messages(4))
    (detach,) = named(answers, "detach")
    assert detach.condition == "amqp:link:transfer-limit-exceeded"
    handle = named(answers, "attach")[1].field(1)
    assert detach.field(0) == handle
    credit = next(flow.field(6) for flow in named(answers, "flow") if flow.field(4) == handle)
    # What was within the credit is there, and the other link goes on.
    assert len(waiting(broker.port, "small")) == credit
    exchange(peer, transfer_frame(data_section(), 1, uint(9), binary(b"t")))
    assert len(waiting(broker.port, address)) == 1


@pytest.mark.spec("2.6.5", "pairing-2.2.2")
def test_what_a_flight_brings_behind_the_detach_costs_nothing_more(
    peer: Client, address: str
) -> None:
    peer.send(attach(address, 1), attach(f"small-{address}"), messages(9))
    detach = peer.expect("detach", "attach", "flow", "disposition")
    assert detach.condition == "amqp:link:transfer-limit-exceeded"
    # The network has cut the flight: the rest of it comes now.
    answers = exchange(
        peer,
        transfer_frame(data_section(), 0, uint(9), binary(b"9"), more=TRUE),
        transfer_frame(data_section(), 0),
        transfer_frame(data_section(), 0, uint(10), binary(b"10")),
        flow_frame(uint(0), delivery_count=uint(11)),
        transfer_frame(data_section(), 1, uint(11), binary(b"t")),
        detach_frame(0),
    )
    assert outcomes_by_id(answers)[11].name == "accepted" and not named(answers, "detach")
    # Handle and name are free.
    peer.sender(f"small-{address}", "s0").publish([])


@pytest.mark.spec("2.6.3")
def test_transfers_behind_an_attach_that_is_refused_are_dropped(
    broker: Broker, peer: Client, address: str
) -> None:
    refused = attach_frame(
        "bad", 0, source=source(), target=target(string("full"), capabilities=symbol("topic"))
    )
    answers = exchange(peer, attach(address, 1), refused, messages(2))
    assert len(named(answers, "detach")) == 1
    exchange(peer, transfer_frame(data_section(), 1, uint(9), binary(b"t")))
    assert len(waiting(broker.port, address)) == 1


@pytest.mark.spec("4.4.1")
def test_a_posting_behind_its_attach_is_never_missing_from_a_commit(
    broker: Broker, peer: Client, address: str
) -> None:
    control = Control(peer)
    txn = control.declare()
    answers = exchange(
        peer,
        attach(address),
        transfer_frame(
            data_section(), 0, uint(1), binary(b"p"), settled=TRUE, state=in_transaction(txn)
        ),
        transfer_frame(discharge_body(txn), 9, uint(2), binary(b"d")),
    )
    errors = [detach.error() for detach in named(answers, "detach")]
    rolled_back = ROLLBACK in [error[0] for error in errors if error is not None]
    committed = any(state.name == "accepted" for state in outcomes_by_id(answers).values())
    # A busy broker may read the posting after it has given credit: then the posting is committed.
    assert committed != rolled_back
    assert len(waiting(broker.port, address)) == (1 if committed else 0)


def paired(role: str, handle: int, name: str = "pair") -> bytes:
    """Encode half of a pair between the node `$management` and the address `mine`."""
    mine, node = string("mine"), string("$management")
    receives = role == "receiver"
    return attach_frame(
        name, handle, receiver=receives,
        source=source(node if receives else mine), target=target(mine if receives else node),
        properties=mapping(symbol("paired"), TRUE),
    )  # fmt: skip


def question(number: int) -> bytes:
    """Encode a management request on handle 0, whose response is for the pair."""
    properties = described(0x73, sequence(ulong(number), NULL, NULL, NULL, string("$me")))
    asked = mapping(string("operation"), string("GET-TYPES"))
    payload = properties + described(0x74, asked) + described(0x77, NULL)
    return transfer_frame(payload, 0, uint(number), binary(b"%d" % number), settled=TRUE)


@pytest.mark.spec("pairing-2.2.2")
@pytest.mark.parametrize("flight", ["attach", "open"])
def test_requests_behind_the_attaches_of_a_pair_are_answered(broker: Broker, flight: str) -> None:
    everything = [
        begin_frame(), paired("sender", 0), paired("receiver", 1),
        flow_frame(uint(1), uint(3), NULL, next_incoming_id=NULL), *[question(n) for n in range(3)],
    ]  # fmt: skip
    with Client(broker.port) as client:
        if flight == "open":
            client.send(AMQP_HEADER, open_frame(), *everything)
            assert client.take(8) == AMQP_HEADER
            client.expect("open")
        else:
            client.open().send(*everything)
        client.expect("begin")
        answers: list[Answer] = []
        while len(named(answers, "transfer")) < 3:
            answer = client.read()
            assert answer is not None and answer.name not in ("detach", "end", "close"), answer
            answers.append(answer)


@pytest.mark.spec("pairing-2.2.2")
def test_only_the_half_of_a_pair_pays_for_requests_beyond_its_credit(broker: Broker) -> None:
    # A busy broker may read the requests in parts, and give credit in between: then none is beyond
    # it, and the next attempt tells.
    for _ in range(5):
        with Client(broker.port) as client:
            client.begin()
            answers = exchange(
                client,
                paired("sender", 0),
                paired("receiver", 1),
                flow_frame(uint(1), uint(3), NULL),
                # The three that are answered may have given their credit back before the rest is
                # read.
                *[question(n) for n in range(20 + 3 + 1)],
            )
            detaches = named(answers, "detach")
            # Session and connection go on.
            client.sender("afterwards", "s7", 7).publish([])
        if detaches:
            break
    (detach,) = detaches
    assert detach.condition == "amqp:link:transfer-limit-exceeded"
    assert detach.field(0) == named(answers, "attach")[0].field(1)


@pytest.mark.spec("pairing-2.2.2")
def test_our_own_pair_sends_its_requests_before_any_answer(broker: Broker) -> None:
    settings = ConnectionSettings(
        container_id="us", initiator=True, desired_capabilities=[LINK_PAIR]
    )
    engine = Connection(settings, 0.0)
    engine.open()
    pair = attach_pair(
        engine.begin(), "pair", address="$management", reply_address="mine", credit=2,
        pipelined=True,
    )  # fmt: skip
    request = Message(None)
    request.properties = Properties(message_id="1", reply_to=ME)
    request.application_properties = {"operation": "GET-TYPES"}
    deliveries = [pair.send(request.encode()) for _ in range(2)]
    responses = 0
    with socket.create_connection(("127.0.0.1", broker.port), PATIENCE) as connected:
        while responses < 2 or not all(one.remote_settled for one in deliveries):
            connected.sendall(engine.data_to_send())
            received = connected.recv(65536)
            assert received, "the broker has hung up"
            engine.receive_data(received, 0.0)
            for event in engine.take_events():
                assert not isinstance(event, (LinkFailed, DetachReceived, EndReceived, Terminated))
                responses += isinstance(event, DeliveryReceived)
    assert pair.paired
