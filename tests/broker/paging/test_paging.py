"""What leaves memory, when, where it goes, and how it comes back."""

from __future__ import annotations

import pytest

from ferrymq_broker.management.sliced_query import finish
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.store.keys import encode_key, seal
from ferrymq_broker.store.record_run import RecordRun
from ferrymq_broker.store.tables import BODY, ENTRY
from ferrymq_broker.values.policy import ExchangePolicy, QueuePolicy, StreamPolicy
from ferrymq_types.filters import NoLocalFilter
from ferrymq_types.messaging import (
    Accepted,
    Data,
    Header,
    MessageAnnotations,
    Modified,
    Released,
    Source,
)
from tests.broker.harness import Sender, message_annotations
from tests.broker.paging.paged import PagedNetwork
from tests.broker.queues.links import consume
from tests.broker.transactions.kit import Controller, post, retire

KIB = b"x" * 1000


def send(sender: Sender, count: int, first: int = 0, durable: bool = False) -> list[bytes]:
    """Messages of somewhat more than a thousand bytes; their bodies."""
    bodies = [b"%06d" % number + KIB for number in range(first, first + count)]
    for body in bodies:
        sender.send_sections(Header(durable=durable), Data(value=body))
    return bodies


def test_below_the_limit_nothing_happens() -> None:
    net = PagedNetwork(limit=100_000)
    net.declare("q")
    bodies = send(net.connect().sender("q"), 50)
    assert net.pager.messages == 0 and net.pages.written == 0
    assert net.queue("q").entries.paging is None
    assert net.connect().receiver("q", credit=50).bodies() == bodies


def test_above_it_messages_that_are_not_durable_are_written_to_pages() -> None:
    net = PagedNetwork(limit=20_000)
    queue = net.declare("q")
    bodies = send(net.connect().sender("q"), 100)
    assert net.broker.agenda.held <= 20_000
    assert net.pager.messages == len(net.pages.pages) == queue.describe()["paged-out"] > 70
    assert queue.available == 100 and queue.bytes > 100_000
    # The next one is in memory.
    assert not queue.peek(1)[0].is_out()
    receiver = net.connect().receiver("q", credit=100)
    assert receiver.bodies() == bodies
    receiver.settle(Accepted(), *receiver.deliveries)
    net.broker.tidy()
    assert net.pages.pages == {} and net.pager.messages == 0 and net.broker.agenda.held == 0
    assert queue.entries.paging is None


def test_what_comes_back_brings_what_is_behind_it() -> None:
    net = PagedNetwork(limit=0)
    net.declare("q")
    send(net.connect().sender("q"), 60)
    assert net.pager.messages == 60
    net.pager.high = net.pager.low = 1_000_000
    receiver = net.connect().receiver("q", credit=1)
    assert len(receiver.deliveries) == 1
    assert net.pager.paged_in == 60


def test_durable_messages_wait_for_their_records_and_need_no_pages() -> None:
    net = PagedNetwork(limit=50_000)
    queue = net.declare("q")
    store = net.store
    assert store is not None
    sender = net.connect().sender("q")
    store.held = True
    send(sender, 60, durable=True)
    assert net.pager.messages == 0, "nobody could read it"
    store.release()
    net.run()
    send(sender, 1, 60, durable=True)
    assert net.pager.messages > 0 and net.pages.written == 0
    assert net.broker.agenda.held <= 50_000
    receiver = net.connect().receiver("q", credit=61)
    assert [int(body[:6]) for body in receiver.bodies()] == list(range(61))
    assert queue.acquired == 61


def test_far_above_the_limit_records_are_not_waited_for() -> None:
    net = PagedNetwork(limit=20_000)
    net.declare("q")
    store = net.store
    assert store is not None
    sender = net.connect().sender("q")
    store.held = True
    bodies = send(sender, 100, durable=True)
    assert net.broker.agenda.held <= 30_000 < net.queue("q").bytes
    assert net.pages.written > 0
    store.release()
    net.run()
    assert net.connect().receiver("q", credit=100).bodies() == bodies


def test_a_body_that_several_have_leaves_once_and_comes_back_once() -> None:
    net = PagedNetwork(limit=0)
    exchange = net.space.create("fan", ExchangePolicy(type="fanout"))
    assert isinstance(exchange, Exchange)
    for name in ("a", "b", "c"):
        net.declare(name)
        exchange.bind(name)
    bodies = send(net.connect().sender("fan"), 5, durable=True)
    net.settle()
    store = net.store
    assert store is not None and store.count(BODY) == 5 and store.count(ENTRY) == 15
    assert net.pager.messages == 5 and net.broker.agenda.held == 0
    net.pager.high = net.pager.low = 1_000_000
    for name in ("a", "b", "c"):
        assert net.connect().receiver(name, credit=5).bodies() == bodies
    assert net.pager.paged_in == 5 and net.broker.agenda.emptied == 0


def test_a_body_that_came_back_for_one_queue_leaves_again_when_that_has_done_with_it() -> None:
    net = PagedNetwork(limit=1)
    exchange = net.space.create("fan", ExchangePolicy(type="fanout"))
    assert isinstance(exchange, Exchange)
    for name in ("a", "b"):
        net.declare(name)
        exchange.bind(name)
    net.connect().sender("fan").send_sections(Header(ttl=60_000), Data(value=KIB))
    net.advance(1)
    net.settle()
    assert net.broker.agenda.held == 0
    # It is another message there: less of its time is left.
    net.broker.begin_pass(net.now)
    assert finish(net.queue("a").move(net.declare("to"), 5)) == (1, None)
    net.broker.finish_pass()
    net.advance(1)
    net.settle()
    assert net.queue("b").available == 1
    assert net.broker.agenda.held == 0


def test_messages_that_cannot_leave_memory_push_no_others_out() -> None:
    net = PagedNetwork(limit=50_000)
    agenda = net.broker.agenda
    net.space.create("log", StreamPolicy())
    send(net.connect().sender("log"), 60)
    later = net.connect().sender("later")
    for _ in range(60):
        delay = MessageAnnotations(value={"x-opt-delivery-delay": 60_000})
        later.send_sections(delay, Data(value=KIB))
    controller = Controller(net.connect())
    txn = controller.declare()
    post(controller.client.sender("q"), txn, *[KIB] * 60)
    assert agenda.held == agenda.pinned > 180_000
    bodies = send(net.connect().sender("other"), 40)
    net.settle()
    assert net.pager.paged_out == 0
    # From now on queues have these messages, which leave memory.
    controller.commit(txn)
    assert agenda.pageable() <= 50_000 and net.pager.paged_out > 40
    net.advance(60)
    net.settle()
    assert agenda.pageable() <= 50_000 and net.pager.paged_out > 100
    assert net.connect().receiver("other", credit=40).bodies() == bodies


def test_messages_that_a_consumer_holds_are_written_to_pages_only_far_above_the_limit() -> None:
    net = PagedNetwork(limit=50_000)
    net.declare("q")
    receiver = net.connect().receiver("q", credit=100)
    sender = net.connect().sender("q")
    bodies = send(sender, 70)
    net.settle()
    assert net.pager.paged_out == 0
    bodies += send(sender, 30, first=70)
    net.settle()
    assert net.pager.paged_out > 20 and net.broker.agenda.held <= 75_000
    assert receiver.bodies() == bodies
    receiver.settle(Accepted(), *receiver.deliveries)
    net.broker.tidy()
    assert net.pages.pages == {} and net.broker.agenda.held == 0


def test_a_restart_leaves_on_disk_what_is_too_much() -> None:
    net = PagedNetwork(limit=20_000)
    net.declare("q", QueuePolicy(priorities=10))
    bodies = send(net.connect().sender("q"), 100, durable=True)
    net.restart()
    assert net.broker.agenda.held <= 21_100
    receiver = net.connect().receiver("q", credit=100)
    assert receiver.bodies() == bodies
    receiver.settle(Accepted(), *receiver.deliveries)
    net.restart()
    assert net.queue("q").message_count() == 0


def test_what_is_held_leaves_memory_and_keeps_what_happens_to_it() -> None:
    net = PagedNetwork(limit=0)
    net.declare("q", QueuePolicy(dead_letter="dead", delivery_limit=1))
    net.declare("dead")
    send(net.connect().sender("q"), 3)
    receiver = net.connect().receiver("q", credit=3)
    net.settle()
    assert net.pager.messages == 3 and net.queue("q").acquired == 3
    released, annotated, failed = receiver.deliveries
    receiver.settle(Released(), released)
    receiver.settle(Modified(message_annotations={"x-opt-seen": "yes"}), annotated)
    receiver.settle(Modified(delivery_failed=True), failed)
    again = net.connect().receiver("q", credit=3)
    assert [int(body[:6]) for body in again.bodies()] == [0, 1, 2]
    assert message_annotations(again.deliveries[1].payload)["x-opt-seen"] == "yes"
    again.settle(Modified(delivery_failed=True), again.deliveries[2])
    dead = net.connect().receiver("dead", credit=3)
    assert [int(body[:6]) for body in dead.bodies()] == [2]


@pytest.mark.parametrize("commit", [True, False])
def test_transactions_have_what_is_out(commit: bool) -> None:
    net = PagedNetwork(limit=0)
    net.declare("q")
    client = net.connect()
    control = Controller(client)
    send(client.sender("q"), 2)
    receiver = client.receiver("q", credit=2)
    txn = control.declare()
    retire(receiver, txn, receiver.take()[0])
    net.settle()
    assert net.pager.messages == 2
    control.discharge(txn, not commit)
    client.lose()
    left = net.connect().receiver("q", credit=5).bodies()
    assert [int(body[:6]) for body in left] == ([1] if commit else [0, 1])


def test_a_damaged_record_is_set_aside_and_the_queue_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    net = PagedNetwork(limit=0)
    net.declare("q")
    send(net.connect().sender("q"), 3, durable=True)
    net.restart()
    queue = net.queue("q")
    store = net.store
    assert store is not None and net.pager.messages == 3
    key = next(key for key in store.records if key[0] == ENTRY and key[2] == 2)
    store.records[key] = store.records[key][:-1]
    receiver = net.connect().receiver("q", credit=5)
    browser = consume(net.connect(), "q", 5, mode="copy")
    assert [int(body[:6]) for body in receiver.bodies()] == [0, 2]
    assert browser.bodies() == []
    said = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
    assert len(said) == 1 and "'q'" in said[0] and "'sequence': 2" in said[0]
    assert net.pager.damaged == 1
    receiver.settle(Accepted(), *receiver.deliveries)
    # It is there, for whoever can make something of it, until somebody throws it away.
    assert queue.message_count() == 1 and key in store.records
    assert queue.purge().count == 1
    net.finish()
    assert queue.message_count() == 0 and key not in store.records


@pytest.mark.parametrize("missing", [False, True])
def test_a_damaged_record_keeps_none_of_those_around_it_on_disk(
    missing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = PagedNetwork(limit=0)
    net.declare("q")
    bodies = send(net.connect().sender("q"), 20, durable=True)
    net.restart()
    store = net.store
    assert store is not None and net.pager.messages == 20
    id = net.queue("q").store_id
    stored = {
        number: seal(encode_key(table, id, number), value)
        for (table, _, number), value in store.records.items()
        if table == ENTRY
    }
    stored[9] = stored[9][:-1] + b"y"
    del store.records[ENTRY, id, 9]

    def run(table: int, id: int, first: int, end: int, most: int) -> RecordRun:
        last = 9 if missing and first <= 9 else end
        those = [stored[number] for number in range(first, last)]
        return RecordRun(encode_key(table, id, first), those, most)

    monkeypatch.setattr(store, "run", run)
    assert net.connect().receiver("q", credit=20).bodies() == bodies[:8] + bodies[9:]
    assert net.pager.damaged == 1
    assert net.queue("q").message_count() == 20


def test_a_page_that_is_lost_is_no_message() -> None:
    net = PagedNetwork(limit=0)
    net.declare("q")
    send(net.connect().sender("q"), 2)
    net.settle()
    net.pages.pages.pop(min(net.pages.pages))
    receiver = net.connect().receiver("q", credit=5)
    assert [int(body[:6]) for body in receiver.bodies()] == [1]
    assert net.pager.damaged == 1 and net.queue("q").message_count() == 2


def test_messages_stay_in_memory_while_the_disk_is_full(
    caplog: pytest.LogCaptureFixture,
) -> None:
    net = PagedNetwork(limit=0)
    net.declare("q")
    net.pages.full = True
    sender = net.connect().sender("q")
    bodies = send(sender, 20)
    assert net.pager.messages == 0
    assert sum("stay in memory" in one.getMessage() for one in caplog.records) == 1
    net.pages.full = False
    net.broker.tidy()
    net.broker.tidy()
    assert net.pager.messages == 20
    assert net.connect().receiver("q", credit=20).bodies() == bodies


def test_without_a_store_there_is_no_paging() -> None:
    net = PagedNetwork(limit=0)
    net.broker.store = None
    with pytest.raises(ValueError, match="no store"):
        net.broker.page_out(net.pages, 1)


def test_an_amended_message_leaves_when_it_is_recorded_as_it_is_now() -> None:
    net = PagedNetwork(limit=0)
    net.declare("q")
    send(net.connect().sender("q"), 20, durable=True)
    net.restart()
    client = net.connect()
    receiver = client.receiver("q", credit=20)
    store = net.store
    assert store is not None
    store.held = True
    note = Modified(message_annotations={"x-opt-note": "n" * 200})
    receiver.settle(note, *receiver.deliveries[:3])
    net.settle()
    assert net.broker.agenda.held == 0
    # The old records are all that can be read: what is out is not taken for what they have.
    shown = [net.queue("q").entries.read_message(entry) for entry in net.queue("q").peek(20)]
    noted = [one is not None and b"x-opt-note" in one.payload for one in shown]
    assert noted == [True] * 3 + [False] * 17
    store.release()
    net.run()
    client.lose()
    again = net.connect().receiver("q", credit=20)
    assert [b"x-opt-note" in one.payload for one in again.deliveries] == noted


def test_what_comes_back_is_still_from_who_sent_it() -> None:
    net = PagedNetwork(limit=0)
    net.declare("q")
    client = net.connect()
    send(client.sender("q"), 2)
    send(net.connect().sender("q"), 2, 2, durable=True)
    net.settle()
    assert net.pager.messages == 4
    source = Source(address="q", filter={"mine": NoLocalFilter()})
    receiver = client.receiver("q", credit=5, source=source)
    assert [int(body[:6]) for body in receiver.bodies()] == [2, 3]


def test_deferred_messages_leave_memory_and_are_received() -> None:
    net = PagedNetwork(limit=20_000)
    queue = net.declare("q", QueuePolicy(lock_duration=30_000, deferral=True))
    bodies = send(net.connect().sender("q"), 100, durable=True)
    receiver = net.connect().receiver("q", credit=50)
    receiver.settle(Modified(undeliverable_here=True))
    receiver.link.detach(closed=True)
    net.run()
    net.broker.tidy()
    deferred = queue.entries.deferred
    assert deferred is not None and deferred.count == 50
    net.restart()
    queue = net.queue("q")
    deferred = queue.entries.deferred
    assert deferred is not None and deferred.count == 50 and queue.available == 50
    entry = deferred.find(7)
    assert entry is not None
    message = queue.entries.read_message(entry)
    assert message is not None and bodies[6] in message.payload
    queue.receive_deferred(entry, True)
    rest = net.connect().receiver("q", credit=100)
    assert rest.bodies() == bodies[50:]
    rest.settle(Accepted(), *rest.deliveries)
    assert queue.purge().count == 49
    assert net.broker.agenda.held == 0
