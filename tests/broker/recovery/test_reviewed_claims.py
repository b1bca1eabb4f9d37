"""Nobody is told of what another connection has changed before that is on disk, if he goes by it.

What is told without a change of its own (it has been taken in before, committed before, made
before) is as much a promise as what is told of a change.
"""

from __future__ import annotations

from ferrymq_broker.management.setup import install
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import (
    Accepted,
    AmqpValue,
    Data,
    Header,
    MessageAnnotations,
    Properties,
)
from ferrymq_types.transactions import Discharge
from ferrymq_types.transport import SenderSettleMode
from tests.broker.harness import Network, text
from tests.broker.management.asker import Answer, Asker, read_answer, request_sections
from tests.broker.recovery.kit import browse, send, store_of
from tests.broker.transactions.kit import Controller, post

FENCE: dict[str | int, object] = {
    "ferrymq:fence-group": "g",
    "ferrymq:fence-member": "m",
    "ferrymq:fence-sequence": 5,
}


def ask(asker: Asker, *request: object) -> None:
    """Ask, whether or not there is an answer."""
    asker.sender.send_sections(
        *request_sections(*request, reply_to=asker.reply_to, message_id="1")  # type: ignore[arg-type]
    )


def answers(asker: Asker) -> list[Answer]:
    """What has come."""
    return [read_answer(one.payload) for one in asker.receiver.take()]


def test_a_duplicate_is_accepted_when_the_first_of_them_is_on_disk(net: Network) -> None:
    net.declare("q", QueuePolicy(duplicate_window=60_000))
    net.run()
    lost, again = net.connect(), net.connect()
    first, second = lost.sender("q"), again.sender("q")
    store = store_of(net)
    store.held = True
    send(first, b"a", properties=Properties(message_id="1"))
    lost.lose()
    (sent,) = send(second, b"a", properties=Properties(message_id="1"))
    assert not sent.settled and sent.remote_state is None
    store.release()
    net.run()
    assert isinstance(sent.remote_state, Accepted)
    net.restart()
    assert browse(net, "q") == [b"a"]


def test_a_duplicate_of_what_is_on_disk_waits_for_nothing(net: Network) -> None:
    net.declare("q", QueuePolicy(duplicate_window=60_000))
    net.run()
    sender = net.connect().sender("q")
    send(sender, b"a", properties=Properties(message_id="1"))
    store_of(net).held = True
    (sent,) = send(sender, b"a", properties=Properties(message_id="1"))
    assert isinstance(sent.remote_state, Accepted)


def test_what_is_resent_by_its_tag_is_accepted_when_it_is_on_disk(net: Network) -> None:
    once: dict[str, object] = {"delivery-mode": "exactly-once"}
    lost = net.connect(container_id="c")
    first = lost.sender("q", name="link", properties=once)
    store = store_of(net)
    store.held = True
    payload = [Header(durable=True), Data(value=b"a")]
    sent = first.send_sections(*payload)
    lost.lose()
    back = net.connect(container_id="c")
    second = back.sender("q", name="link", properties=once)
    # Not even the attach is answered.
    assert not second.attached and not sent.settled
    store.held = False
    net.restart()
    assert browse(net, "q") == []


def test_a_fence_is_passed_when_that_is_on_disk(net: Network) -> None:
    install(net.space, net.broker)
    net.declare("q")
    asker = Asker(net)
    lost, again = net.connect(), net.connect()
    controls = [Controller(client) for client in (lost, again)]
    sender = lost.sender("q")
    store = store_of(net)
    txn, other = (control.declare() for control in controls)
    post(sender, txn, b"a")
    store.held = True
    discharges = [
        control.tell(
            MessageAnnotations(value=FENCE), AmqpValue(value=Discharge(txn_id=one, fail=False))
        )
        for control, one in zip(controls, (txn, other), strict=True)
    ]
    assert [one.remote_state for one in discharges] == [None, None]
    ask(asker, "READ", "fence", None, {"group": "g", "member": "m"})
    assert answers(asker) == []
    store.release()
    net.run()
    assert all(one.remote_state is not None for one in discharges)
    (answer,) = answers(asker)
    assert answer.map()["sequence"] == 5


def test_a_node_exists_already_when_it_is_on_disk(net: Network) -> None:
    install(net.space, net.broker)
    one, other = Asker(net), Asker(net)
    store = store_of(net)
    store.held = True
    for asker in (one, other):
        ask(asker, "CREATE", "queue", "new", {})
    assert answers(one) == [] and answers(other) == []
    store.release()
    net.run()
    assert [a.status for a in (*answers(one), *answers(other))] == [201, 200]


def test_what_is_sent_settled_is_gone_on_disk_before_it_leaves(net: Network) -> None:
    send(net.connect().sender("q"), b"a")
    store = store_of(net)
    store.held = True
    receiver = net.connect().receiver("q", credit=1, snd=SenderSettleMode.SETTLED)
    assert receiver.deliveries == []
    store.release()
    net.run()
    assert [text(one.payload) for one in receiver.deliveries] == [b"a"]
    net.restart()
    assert browse(net, "q") == []


def test_what_is_not_stored_is_sent_settled_at_once(net: Network) -> None:
    send(net.connect().sender("q"), b"a", durable=False)
    store_of(net).held = True
    receiver = net.connect().receiver("q", credit=1, snd=SenderSettleMode.SETTLED)
    assert receiver.bodies() == [b"a"]
    browser = net.connect().receiver("q", credit=1, mode="copy", snd=SenderSettleMode.SETTLED)
    assert browser.attached
