"""Control links: declare and discharge, and everything that is neither (AMQP 1.0 §4.2–3, §4.5)."""

from __future__ import annotations

import pytest

from ferrymq_types.messaging import (
    AmqpValue,
    ApplicationProperties,
    Data,
    Footer,
    Header,
    Properties,
    Source,
)
from ferrymq_types.transactions import Declare, Declared, Discharge
from tests.broker.harness import Client, Network
from tests.broker.transactions.kit import (
    ACCEPTED,
    ROLLBACK,
    TIMEOUT,
    UNKNOWN_ID,
    Controller,
    post,
    reason,
)


@pytest.mark.spec("4.5.1")
@pytest.mark.parametrize("asked", [None, ["amqp:local-transactions"], ["amqp:promotable"]])
def test_the_answer_has_the_capabilities_that_are_true(
    client: Client, asked: list[str] | None
) -> None:
    control = Controller(client, capabilities=asked)
    assert control.target.capabilities == [
        "amqp:local-transactions",
        "amqp:multi-txns-per-ssn",
        "amqp:multi-ssns-per-txn",
    ]


@pytest.mark.spec("4.2")
@pytest.mark.parametrize("source", [None, Source()])
def test_a_control_link_may_lack_a_source(client: Client, source: Source | None) -> None:
    control = Controller(client, source=source)
    assert control.attached and not control.detached
    control.commit(control.declare())


@pytest.mark.spec("4.2")
def test_a_declare_is_answered_with_an_id_of_its_own(control: Controller) -> None:
    ids = {control.declare() for _ in range(5)}
    assert len(ids) == 5
    assert all(0 < len(id) <= 32 for id in ids)


@pytest.mark.spec("4.2")
def test_sections_around_the_body_are_ignored(control: Controller) -> None:
    delivery = control.tell(
        Header(durable=True),
        Properties(subject="noise"),
        ApplicationProperties(value={"a": 1}),
        AmqpValue(value=Declare()),
        Footer(value={"b": 2}),
    )
    assert isinstance(delivery.remote_state, Declared)


@pytest.mark.spec("4.2")
@pytest.mark.parametrize("body", [Declare(), Discharge(txn_id=b"x")])
def test_a_settled_message_ends_the_link(control: Controller, body: Declare | Discharge) -> None:
    control.tell(AmqpValue(value=body), settled=True)
    assert control.error is not None and control.error.condition == "amqp:illegal-state"


@pytest.mark.spec("4.2")
@pytest.mark.parametrize(
    "section",
    [
        AmqpValue(value="commit"),
        AmqpValue(value=ACCEPTED),
        AmqpValue(value=None),
        Data(value=b"declare"),
    ],
)
def test_anything_else_is_rejected(control: Controller, section: AmqpValue | Data) -> None:
    assert reason(control.tell(section)).startswith(f"{ROLLBACK}: ")
    # The link goes on.
    control.commit(control.declare())


@pytest.mark.spec("4.2")
@pytest.mark.parametrize(
    "payload", [b"", b"\x00\x53\x77", b"\x00\x53\x77\x00\x53\x32\x45", b"\xff"]
)
def test_a_malformed_message_is_rejected(control: Controller, payload: bytes) -> None:
    delivery = control.link.send(payload)
    control.net.run()
    assert reason(delivery).startswith(f"{ROLLBACK}: ")
    control.commit(control.declare())


@pytest.mark.spec("4.5.2")
def test_there_are_no_global_transactions(control: Controller) -> None:
    delivery = control.tell(AmqpValue(value=Declare(global_id=b"branch 1")))
    assert reason(delivery).startswith(f"{ROLLBACK}: the declare has a global-id")


@pytest.mark.spec("4.2")
@pytest.mark.spec("4.3")
def test_where_the_source_knows_no_rejected_the_link_ends(client: Client) -> None:
    source = Source(outcomes=["amqp:accepted:list", "amqp:declared:list"])
    control = Controller(client, source=source)
    control.commit(control.declare())
    control.tell(AmqpValue(value=Declare(global_id=b"branch 1")))
    assert control.error is not None and control.error.condition == ROLLBACK
    control = Controller(client, source=source)
    control.discharge(b"nothing")
    assert control.error is not None and control.error.condition == UNKNOWN_ID


@pytest.mark.spec("4.3")
@pytest.mark.parametrize("fail", [True, False, None])
def test_an_id_is_unknown_before_it_is_declared_and_once_it_is_discharged(
    control: Controller, fail: bool | None
) -> None:
    assert reason(control.discharge(b"\0\0\0\0\0\0\0\1", fail)).startswith(UNKNOWN_ID)
    txn = control.declare()
    assert control.discharge(txn, fail).remote_state == ACCEPTED
    assert reason(control.discharge(txn, fail)).startswith(UNKNOWN_ID)


def test_a_discharge_without_fail_commits(net: Network, control: Controller) -> None:
    txn = control.declare()
    post(control.client.sender("q"), txn, b"a")
    assert control.discharge(txn, None).remote_state == ACCEPTED
    assert net.queue("q").available == 1


@pytest.mark.spec("4.1")
def test_an_id_means_nothing_on_another_connection(net: Network, control: Controller) -> None:
    txn = control.declare()
    post(control.client.sender("q"), txn, b"a")
    stranger = net.connect()
    assert Controller(stranger).refused(txn).startswith(UNKNOWN_ID)
    (delivery,) = post(stranger.sender("q"), txn, b"b")
    assert reason(delivery).startswith(UNKNOWN_ID)
    control.commit(txn)
    assert net.queue("q").available == 1


def test_a_transaction_is_discharged_where_it_was_declared(control: Controller) -> None:
    txn = control.declare()
    other = Controller(control.client)
    assert other.refused(txn).startswith(UNKNOWN_ID)
    control.commit(txn)


@pytest.mark.spec("4.1")
@pytest.mark.parametrize("closed", [True, False])
def test_the_end_of_the_control_link_rolls_back(
    net: Network, control: Controller, closed: bool
) -> None:
    client = control.client
    sender = client.sender("q")
    other = Controller(client)
    kept = other.declare()
    txn = control.declare()
    post(sender, txn, b"a")
    post(sender, kept, b"b")
    control.close(closed)
    assert control.detached and control.error is None
    (delivery,) = post(sender, txn, b"c")
    assert reason(delivery).startswith(UNKNOWN_ID)
    # Other control links have nothing to do with it.
    other.commit(kept)
    assert net.connect().receiver("q", credit=9).bodies() == [b"b"]


@pytest.mark.spec("4.2")
def test_a_control_link_is_not_resumed(net: Network, client: Client) -> None:
    control = Controller(client)
    txn = control.declare()
    post(client.sender("q"), txn, b"a")
    control.close(False)
    again = client.session.attach_sender(control.link.name, target=control.target, source=Source())
    client.links[again] = control
    net.run()
    control.link = again
    assert again.remote_attach is not None and not again.remote_attach.unsettled
    assert control.refused(txn).startswith(UNKNOWN_ID)
    assert net.queue("q").available == 0


@pytest.mark.spec("4.1")
def test_the_end_of_the_session_or_the_connection_rolls_back(net: Network) -> None:
    for ending in ("session", "connection", "transport"):
        client = net.connect()
        session = client.begin()
        control = Controller(client, session=session)
        sender = client.sender("q")
        txn = control.declare()
        post(sender, txn, b"a")
        if ending == "session":
            session.end()
            net.run()
            (delivery,) = post(sender, txn, b"b")
            assert reason(delivery).startswith(UNKNOWN_ID)
        elif ending == "connection":
            client.close()
        else:
            client.lose()
        queue = net.queue("q")
        assert (queue.available, net.broker.agenda.held) == (0, 0)


@pytest.mark.spec("4.5.8")
def test_a_transaction_that_takes_too_long_is_rolled_back(
    net: Network, control: Controller
) -> None:
    net.broker.transaction_limits.timeout = 60_000
    sender = control.client.sender("q")
    txn = control.declare()
    post(sender, txn, b"a")
    net.advance(61)
    assert net.broker.agenda.held == net.broker.agenda.pinned == 0
    (late,) = post(sender, txn, b"b")
    assert reason(late).startswith(TIMEOUT)
    assert control.refused(txn).startswith(f"{TIMEOUT}: the transaction was rolled back")
    assert control.refused(txn).startswith(UNKNOWN_ID)
    assert net.queue("q").available == 0


@pytest.mark.spec("4.3")
def test_a_transaction_that_took_too_long_can_be_rolled_back(
    net: Network, control: Controller
) -> None:
    net.broker.transaction_limits.timeout = 60_000
    txn = control.declare()
    net.advance(61)
    control.roll_back(txn)


def test_one_that_is_discharged_in_time_never_times_out(net: Network, control: Controller) -> None:
    net.broker.transaction_limits.timeout = 60_000
    for end in (control.commit, control.roll_back):
        txn = control.declare()
        net.advance(59)
        end(txn)
    assert len(net.broker.timers) == 0
    net.advance(600)
    control.commit(control.declare())


def test_without_a_time_out_a_transaction_lasts(net: Network, control: Controller) -> None:
    net.broker.transaction_limits.timeout = 0
    txn = control.declare()
    net.advance(1_000_000)
    control.commit(txn)


def test_a_connection_may_have_so_many_open(net: Network, control: Controller) -> None:
    net.broker.transaction_limits.open = 3
    txns = [control.declare() for _ in range(3)]
    delivery = control.tell(AmqpValue(value=Declare()))
    assert reason(delivery).startswith(f"{ROLLBACK}: the connection has 3 open transactions")
    # It is each connection's own limit.
    Controller(net.connect()).declare()
    control.roll_back(txns[0])
    control.declare()


def test_a_transaction_may_have_so_much_work(net: Network, control: Controller) -> None:
    net.broker.transaction_limits.work = 3
    sender = control.client.sender("q")
    txn = control.declare()
    *_, last = post(sender, txn, b"a", b"b", b"c", b"d")
    assert reason(last).startswith(ROLLBACK)
    assert "which is the limit" in control.refused(txn)
    assert net.queue("q").available == 0


def test_a_transaction_may_be_so_large(net: Network, control: Controller) -> None:
    net.broker.transaction_limits.bytes = 1000
    sender = control.client.sender("q")
    txn = control.declare()
    post(sender, txn, b"a" * 600)
    (last,) = post(sender, txn, b"b" * 600)
    assert reason(last).startswith(ROLLBACK)
    assert "more than 1000 bytes" in control.refused(txn)
    assert net.broker.agenda.held == net.broker.agenda.pinned == 0


def test_credit_on_the_control_link_does_not_run_out(control: Controller) -> None:
    for _ in range(300):
        control.commit(control.declare())
    assert control.link.credit > 0


def test_a_client_that_does_not_read_gets_no_credit_for_it(net: Network, client: Client) -> None:
    control = Controller(client)
    client.pause()
    while control.link.credit:
        control.link.send(b"nonsense")
        net.run()
    assert control.link.credit == 0
    client.resume()
    assert control.link.credit > 0
