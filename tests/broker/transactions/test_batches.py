"""Batches of messages in transactions, on links that have agreed on them (`ferrymq.batches`)."""

from __future__ import annotations

import pytest

from ferrymq.batches import BATCH_FORMAT, BATCH_MESSAGES, BATCHES, BatchBuilder
from ferrymq.engine.delivery import OutgoingDelivery
from ferrymq_broker.config import Config
from ferrymq_broker.connections.message_batches import split
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_types.messaging import (
    Accepted,
    Data,
    MessageAnnotations,
    Rejected,
    Target,
    TerminusDurability,
)
from ferrymq_types.transactions import TransactionalState
from ferrymq_types.transport import Error, SenderSettleMode
from tests.broker.harness import Client, Network, Sender, encode
from tests.broker.streams.kit import declare
from tests.broker.transactions.kit import ACCEPTED, ROLLBACK, Controller, post, provisional

ONCE = "delivery-mode"


def batching(client: Client, address: str) -> Sender:
    """A sender that has agreed on batches."""
    sender = client.sender(address, properties={BATCHES: True})
    assert granted(sender)
    return sender


def granted(sender: Sender) -> bool:
    """Whether the broker takes batches."""
    attach = sender.link.remote_attach
    assert attach is not None
    return (attach.properties or {}).get(BATCHES) is True


def messages(*bodies: bytes) -> list[bytes]:
    return [encode(Data(value=body)) for body in bodies]


def post_batch(
    sender: Sender, txn: bytes, payloads: list[bytes], settled: bool = False
) -> OutgoingDelivery:
    batch = BatchBuilder(1_000_000).build(payloads, 0, len(payloads))
    return sender.send_encoded(
        batch,
        settled=settled,
        message_format=BATCH_FORMAT,
        state=TransactionalState(txn_id=txn),
    )


def contents(stream: Stream) -> list[list[bytes]]:
    """The bodies of the records, by partition."""
    return [
        [payload[5:] for payload in partition.log.find(0).payloads]
        for partition in stream.partitions
    ]


@pytest.mark.parametrize("settled", [False, True])
def test_the_messages_are_there_when_the_transaction_is_committed(
    net: Network, control: Controller, settled: bool
) -> None:
    stream = declare(net, partitions=2)
    txn = control.declare()
    sender = batching(control.client, "s")
    first = post_batch(sender, txn, messages(b"a", b"b", b"c"), settled)
    post(sender, txn, b"d")
    second = post_batch(sender, txn, messages(b"e", b"f"), settled)
    assert stream.message_count() == 0
    if not settled:
        assert provisional(first, txn) == provisional(second, txn) == ACCEPTED
    control.commit(txn)
    # In the partitions that they would have one by one.
    assert contents(stream) == [[b"a", b"c", b"e"], [b"b", b"d", b"f"]]
    assert net.broker.agenda.held == sum(p.log.bytes for p in stream.partitions)
    if not settled:
        assert first.remote_settled and first.remote_state == second.remote_state == ACCEPTED


def test_they_are_nowhere_when_it_is_rolled_back(net: Network, control: Controller) -> None:
    stream = declare(net)
    txn = control.declare()
    sender = batching(control.client, "s::0")
    delivery = post_batch(sender, txn, messages(b"a", b"b"))
    assert net.broker.agenda.held > 0
    control.roll_back(txn)
    assert stream.message_count() == net.broker.agenda.held == 0
    assert delivery.remote_settled and not isinstance(delivery.remote_state, Accepted)


def test_they_are_nowhere_when_the_connection_is_lost(net: Network, control: Controller) -> None:
    stream = declare(net)
    post_batch(batching(control.client, "s"), control.declare(), messages(b"a", b"b"))
    control.client.lose()
    net.run()
    assert stream.message_count() == net.broker.agenda.held == 0


@pytest.mark.parametrize("settled", [False, True])
def test_a_message_that_is_refused_is_named_by_its_number(
    net: Network, control: Controller, settled: bool
) -> None:
    stream = declare(net, partitions=2)
    txn = control.declare()
    sender = batching(control.client, "s")
    post_batch(sender, txn, messages(b"a", b"b"), True)
    wrong = encode(MessageAnnotations(value={"x-opt-partition": 2}), Data(value=b"d"))
    delivery = post_batch(sender, txn, [*messages(b"c"), wrong, *messages(b"e")], settled)
    if settled:
        (told,) = post(sender, txn, b"f")
        state: object = told.remote_state
    else:
        state = provisional(delivery, txn)
    assert isinstance(state, Rejected) and state.error is not None
    # The fourth, counted from 0 among all of the transaction.
    assert state.error.info is not None and state.error.info["message"] == 3
    reason = control.refused(txn)
    assert reason.startswith(ROLLBACK) and "has the partitions 0 to 1" in reason
    assert stream.message_count() == net.broker.agenda.held == 0


@pytest.mark.parametrize(
    "payload", [b"", b"\x00\x53\x75\xb0\x00\x00\x00\x09short", b"\x00\x53\x77\x45"]
)
def test_a_malformed_batch_dooms_the_transaction(
    net: Network, control: Controller, payload: bytes
) -> None:
    declare(net)
    txn = control.declare()
    sender = batching(control.client, "s")
    state = TransactionalState(txn_id=txn)
    delivery = sender.send_encoded(payload, message_format=BATCH_FORMAT, state=state)
    outcome = provisional(delivery, txn)
    assert isinstance(outcome, Rejected) and outcome.error is not None
    assert outcome.error.condition == "amqp:decode-error"
    assert "amqp:decode-error" in control.refused(txn)


def test_a_malformed_message_dooms_the_transaction(net: Network, control: Controller) -> None:
    declare(net)
    txn = control.declare()
    bad = b"\x00\x53\x70\xc0\xff"
    delivery = post_batch(batching(control.client, "s"), txn, [*messages(b"a"), bad])
    outcome = provisional(delivery, txn)
    assert isinstance(outcome, Rejected) and outcome.error is not None
    assert outcome.error.info is not None and outcome.error.info["message"] == 1
    assert "amqp:decode-error" in control.refused(txn)


@pytest.mark.parametrize("limit", ["transaction-work", "transaction-bytes"])
def test_messages_of_batches_count_for_the_limits(net: Network, limit: str) -> None:
    config = Config.model_validate({"limits": {limit: 200 if limit.endswith("bytes") else 4}})
    net.restart(config)
    stream = declare(net)
    control = Controller(net.connect())
    sender = batching(control.client, "s")
    txn = control.declare()
    payloads = messages(*[b"x" * 45] * 4)
    assert sum(map(len, payloads)) == 200
    post_batch(sender, txn, payloads)
    control.commit(txn)
    assert stream.message_count() == 4
    txn = control.declare()
    delivery = post_batch(sender, txn, [*payloads, *messages(b"")])
    assert isinstance(delivery.remote_state, Rejected)
    assert "limit" in control.refused(txn)
    assert stream.message_count() == 4


def test_a_stream_that_is_deleted_meanwhile_is_an_error(net: Network, control: Controller) -> None:
    stream = declare(net)
    txn = control.declare()
    post_batch(batching(control.client, "s"), txn, messages(b"a"))
    stream.delete(Error(condition="amqp:resource-deleted"))
    net.run()
    assert "deleted" in control.refused(txn)


def test_without_a_transaction_a_batch_is_taken_too(net: Network, client: Client) -> None:
    stream = declare(net)
    sender = batching(client, "s")
    batch = BatchBuilder(1000).build(messages(b"a", b"b"), 0, 2)
    delivery = sender.send_encoded(batch, message_format=BATCH_FORMAT)
    assert delivery.remote_state == ACCEPTED
    assert contents(stream) == [[b"a", b"b"]]


def test_a_batch_ends_at_its_limit() -> None:
    builder = BatchBuilder(100)
    payloads = [bytes(42), bytes(42), bytes(1), bytes(200), *[b""] * 2000]
    ends = [0]
    while ends[-1] < len(payloads):
        ends.append(builder.end_of(payloads, ends[-1], len(payloads)))
        batch = builder.build(payloads, ends[-2], ends[-1])
        assert split(batch) == (payloads[ends[-2] : ends[-1]], None)
        # A message that is larger than the limit is alone.
        assert len(batch) <= 100 or ends[-1] == ends[-2] + 1
    assert ends[:5] == [0, 2, 3, 4, 16]
    assert BatchBuilder(1_000_000).end_of(payloads, 4, len(payloads)) == 4 + BATCH_MESSAGES
    assert builder.end_of(payloads, 0, 1) == 1


def test_rates_count_the_messages_of_batches(net: Network, control: Controller) -> None:
    declare(net)
    txn = control.declare()
    post_batch(batching(control.client, "s"), txn, messages(b"a", b"b", b"c"))
    assert [handler.traffic().received for handler in net.broker.handlers] == [3]


def test_only_streams_take_batches(net: Network, client: Client) -> None:
    declare(net)
    asked: dict[str, object] = {BATCHES: True}
    assert granted(client.sender("s", properties=asked))
    assert granted(client.sender("s::0", properties=asked))
    assert not granted(client.sender("q", properties=asked))
    assert not granted(client.sender(None, properties=asked))
    assert not granted(client.sender("s"))
    assert not granted(client.sender("s", properties={BATCHES: False}))


def test_links_that_remember_deliveries_take_no_batches(net: Network, client: Client) -> None:
    declare(net)
    asked: dict[str, object] = {BATCHES: True}
    durable = Target(address="s", durable=TerminusDurability.UNSETTLED_STATE)
    assert not granted(client.sender("s", target=durable, properties=asked))
    once = asked | {ONCE: "exactly-once"}
    assert not granted(client.sender("s", properties=once, snd=SenderSettleMode.UNSETTLED))


def test_a_client_with_a_rate_limit_sends_messages_one_by_one(net: Network) -> None:
    net.restart(Config.model_validate({"limits": {"messages-per-second": 1000}}))
    declare(net)
    assert not granted(net.connect().sender("s", properties={BATCHES: True}))


def test_a_batch_on_a_link_that_has_not_agreed_dooms_the_transaction(
    net: Network, control: Controller
) -> None:
    declare(net)
    txn = control.declare()
    post_batch(control.client.sender("s"), txn, messages(b"a"), True)
    assert "a batch of messages cannot be part of a transaction" in control.refused(txn)
