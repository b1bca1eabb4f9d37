"""Transactions and the end of the broker: all of each is on disk in one batch, or nothing of it."""

from __future__ import annotations

import json
import random

import pytest

from ferrymq_broker.cli.store.json_lines import line_of, record_of
from ferrymq_broker.management.setup import install
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.fences import FenceRecord
from ferrymq_broker.store.map_values import decode_map, encode_map
from ferrymq_broker.store.records import Record
from ferrymq_broker.store.tables import FENCE as FENCE_TABLE
from ferrymq_broker.values.policy import ExchangePolicy, QueuePolicy, StreamPolicy, TopicPolicy
from ferrymq_types.messaging import (
    Accepted,
    AmqpValue,
    Data,
    Header,
    MessageAnnotations,
    Modified,
    Rejected,
)
from ferrymq_types.transactions import Discharge
from ferrymq_types.unions import Outcome
from tests.broker.harness import Client, Network, Sender, header
from tests.broker.recovery.kit import bodies, browse, send, store_of, stored_network, subscribe
from tests.broker.streams.kit import read
from tests.broker.transactions.kit import (
    Controller,
    acquire,
    post_sections,
    provisional,
    reason,
    retire,
)

FENCE: dict[str | int, object] = {
    "ferrymq:fence-group": "g",
    "ferrymq:fence-member": "m",
    "ferrymq:fence-sequence": 5,
}
# Where one message is posted, and where it is to be seen then.
TARGETS = ("one", "two", "news", "log", "router::key")
SEEN = ("one", "two", "bound", "also")


@pytest.fixture
def net() -> Network:
    """A broker with a store, and nodes of every kind."""
    return make_network()


def make_network() -> Network:
    net = stored_network()
    for name in ("one", "two", "bound", "also", "in", "dead"):
        net.declare(name, QueuePolicy(dead_letter="dead" if name == "in" else ""))
    net.space.create("news", TopicPolicy())
    net.space.create("log", StreamPolicy())
    router = net.space.create("router", ExchangePolicy(type="fanout"))
    assert isinstance(router, Exchange)
    router.bind("bound")
    router.bind("also")
    subscribe(net.connect(container_id="reader"), "news", "all").close(closed=False)
    return net


def write(sender: Sender, txn: bytes, body: bytes) -> None:
    post_sections(sender, txn, Header(durable=True), Data(value=body))


def write_everywhere(client: Client, txn: bytes, body: bytes) -> None:
    for address in TARGETS:
        write(client.sender(address), txn, body)


def seen(net: Network) -> dict[str, list[bytes]]:
    """What can be seen of what was posted, for each place; everything stays there."""
    found = {address: browse(net, address) for address in SEEN}
    client = net.connect(container_id="reader")
    reader = subscribe(client, "news", "all")
    found["news"] = bodies(reader.take())
    reader.close(closed=False)
    found["log"] = read(client, "log").bodies()
    client.close()
    return found


def everywhere(*messages: bytes) -> dict[str, list[bytes]]:
    return {place: list(messages) for place in (*SEEN, "news", "log")}


@pytest.mark.spec("3.2.1")
def test_what_was_committed_survives_a_crash(net: Network) -> None:
    send(net.connect().sender("in"), b"a", b"b", b"c", b"d")
    client = net.connect()
    control = Controller(client)
    receiver = client.receiver("in", credit=3)
    accepted, rejected, failed = receiver.take()
    txn = control.declare()
    write_everywhere(client, txn, b"posted")
    retire(receiver, txn, accepted)
    retire(receiver, txn, rejected, outcome=Rejected())
    retire(receiver, txn, failed, outcome=Modified(delivery_failed=True))
    control.commit(txn)
    net.restart()
    assert seen(net) == everywhere(b"posted")
    left = net.connect().receiver("in", credit=10)
    assert left.bodies() == [b"c", b"d"]
    assert header(left.deliveries[0].payload).delivery_count == 1
    assert browse(net, "dead") == [b"b"]


@pytest.mark.parametrize("written", [True, False])
def test_a_commit_is_answered_when_all_of_it_is_on_disk(net: Network, written: bool) -> None:
    send(net.connect().sender("in"), b"a", b"b")
    client = net.connect()
    control = Controller(client)
    receiver = client.receiver("in", credit=2)
    accepted, rejected = receiver.take()
    watcher = net.connect().receiver("one", credit=10)
    txn = control.declare()
    write_everywhere(client, txn, b"posted")
    retire(receiver, txn, accepted)
    retire(receiver, txn, rejected, outcome=Rejected())
    store = store_of(net)
    before = store.batches
    store.held = True
    discharge = control.discharge(txn)
    # Neither who asked for it hears of it, nor anybody else.
    assert discharge.remote_state is None and not discharge.remote_settled
    assert watcher.bodies() == []
    if written:
        store.release()
        net.run()
        # Five nodes, two outcomes and a dead letter: one batch.
        assert store.batches == before + 1
        assert discharge.remote_state == Accepted() and watcher.bodies() == [b"posted"]
    net.restart()
    store.held = False
    if written:
        assert seen(net) == everywhere(b"posted")
        assert (browse(net, "in"), browse(net, "dead")) == ([], [b"b"])
    else:
        assert seen(net) == everywhere()
        assert (browse(net, "in"), browse(net, "dead")) == ([b"a", b"b"], [])


@pytest.mark.spec("4.4")
def test_what_is_open_is_rolled_back_by_a_crash(net: Network) -> None:
    send(net.connect().sender("in"), b"a", b"b", b"c")
    client = net.connect()
    control = Controller(client)
    txn = control.declare()
    write_everywhere(client, txn, b"posted")
    plain = client.receiver("in", credit=1)
    retire(plain, txn, *plain.take(), settled=True)
    receiver = client.receiver("in")
    acquire(receiver, txn, 1)
    assert receiver.bodies() == [b"b"]
    net.restart()
    assert seen(net) == everywhere()
    assert browse(net, "in") == [b"a", b"b", b"c"]
    # Its name means nothing to the broker there is now.
    again = Controller(net.connect())
    assert again.refused(txn).startswith("amqp:transaction:unknown-id")


def test_what_was_acquired_and_committed_is_held_no_more_after_a_crash(net: Network) -> None:
    """A commit gives a message that was only acquired no outcome: it comes again."""
    send(net.connect().sender("in"), b"a", b"b")
    client = net.connect()
    control = Controller(client)
    txn = control.declare()
    receiver = client.receiver("in")
    acquire(receiver, txn, 2)
    first, _ = receiver.take()
    retire(receiver, txn, first)
    control.commit(txn)
    net.restart()
    assert browse(net, "in") == [b"b"]


def test_a_provisional_outcome_promises_nothing_to_the_disk(net: Network) -> None:
    client = net.connect()
    control = Controller(client)
    sender = client.sender("one")
    txn = control.declare()
    store = store_of(net)
    store.held = True
    before = dict(store.records)
    posted = post_sections(sender, txn, Header(durable=True), Data(value=b"a"))
    assert provisional(posted, txn) == Accepted()
    assert store.batch is None and store.records == before


def test_a_fence_is_stored_with_what_was_written(net: Network) -> None:
    def attempt(hold: bool = False) -> Outcome | None:
        client = net.connect()
        control = Controller(client)
        txn = control.declare()
        write(client.sender("one"), txn, b"a")
        write(client.sender("log"), txn, b"a")
        store_of(net).held = hold
        delivery = control.tell(
            MessageAnnotations(value=FENCE),
            AmqpValue(value=Discharge(txn_id=txn, fail=False)),
        )
        if isinstance(delivery.remote_state, Rejected):
            assert reason(delivery).startswith("ferrymq:fence-passed")
        return delivery.remote_state  # type: ignore[return-value]

    install(net.space, net.broker)
    # The first attempt does not get to disk, and so neither does the fence.
    assert attempt(hold=True) is None
    net.restart()
    assert attempt() == Accepted()
    net.restart()
    assert isinstance(attempt(), Rejected)
    assert browse(net, "one") == [b"a"]
    assert read(net.connect(), "log").bodies() == [b"a"]


def test_what_a_fence_knows_survives(net: Network) -> None:
    def tried(annotations: dict[str | int, object]) -> str:
        client = net.connect()
        control = Controller(client)
        txn = control.declare()
        write(client.sender("one"), txn, b"a")
        delivery = control.tell(
            MessageAnnotations(value=annotations),
            AmqpValue(value=Discharge(txn_id=txn, fail=False)),
        )
        return "" if delivery.remote_state == Accepted() else reason(delivery)

    mine = FENCE | {
        "ferrymq:fence-target": "one",
        "ferrymq:fence-rows": 1,
        "ferrymq:fence-digest": b"d" * 16,
    }
    assert tried(mine) == ""
    net.space.fences.repeat(FenceRecord("g", "m", 5, 0, "one", 1, b"d" * 16))
    net.finish()
    net.restart()
    assert tried(mine).startswith("ferrymq:fence-passed")
    assert tried(mine | {"ferrymq:fence-rows": 2}).startswith("ferrymq:fence-content")
    passed = net.space.fences.find("g", "m", "one")
    assert passed is not None
    assert (passed.rows, passed.digest, passed.repeated) == (1, b"d" * 16, 1)
    # Exports have it.
    for (table, id, number), value in store_of(net).records.items():
        if table == FENCE_TABLE:
            line = line_of(table, Record(id, number, value))
            assert decode_map(record_of(json.loads(line))[1].value) == decode_map(value)
    # What an older release has stored has neither target nor digest, and rules for all targets.
    older = {"space": net.space.name, "group": "old", "member": "m"}
    value = encode_map({**older, "sequence": 5, "width": 0, "time": 0})
    store_of(net).records[FENCE_TABLE, 10_000, 0] = value
    net.restart()
    known = mine | {"ferrymq:fence-group": "old"}
    assert tried(known).startswith("ferrymq:fence-passed")
    assert tried(known | {"ferrymq:fence-sequence": 6}) == ""
    assert browse(net, "one") == [b"a", b"a"]


# -- any number of them, and a crash whenever it likes ---------------------------------


class Work:
    """One transaction: where its message was posted, and the jobs that go with it."""

    def __init__(self, targets: list[str], jobs: list[bytes]) -> None:
        self.places = {place for target in targets for place in shown(target)}
        self.jobs = jobs


def shown(target: str) -> list[str]:
    """Where a message that is posted to a target is seen."""
    return ["bound", "also"] if target == "router::key" else [target]


class Story:
    """A client with transactions, on a broker that now and then stops without a word."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.net = make_network()
        self.store = store_of(self.net)
        self.jobs = [b"job %d" % number for number in range(20)]
        send(self.net.connect().sender("in"), *self.jobs)
        self.numbers = 0
        # By the body of its message.
        self.committed: dict[bytes, Work] = {}
        self.connect()

    def connect(self) -> None:
        self.client = self.net.connect()
        self.control = Controller(self.client)
        self.receiver = self.client.receiver("in")
        self.senders = {address: self.client.sender(address) for address in TARGETS}

    def begin(self) -> tuple[bytes, bytes, Work]:
        """A transaction with its work: its id, the body of its message, and what it does."""
        self.numbers += 1
        body = b"message %d" % self.numbers
        targets = self.random.sample(TARGETS, self.random.randint(1, len(TARGETS)))
        txn = self.control.declare()
        for target in targets:
            write(self.senders[target], txn, body)
        taken = []
        if self.random.random() < 0.7:
            acquire(self.receiver, txn, self.random.randint(1, 2))
            taken = self.receiver.take()
            outcome: Outcome = self.random.choice([Accepted(), Rejected()])
            retire(self.receiver, txn, *taken, outcome=outcome)
        return txn, body, Work(targets, bodies(taken))

    def step(self) -> None:
        txn, body, work = self.begin()
        end = self.random.choice(["roll back", "leave", "commit", "commit", "in doubt", "in doubt"])
        if end == "roll back":
            self.control.roll_back(txn)
        elif end == "commit":
            self.control.commit(txn)
            self.committed[body] = work
        elif end == "in doubt":
            self.store.held = True
            assert self.control.discharge(txn).remote_state is None
            self.store.held = False
            if self.random.random() < 0.5:
                # It gets to disk, and nobody hears of it.
                assert self.store.complete()
                self.committed[body] = work
            self.crash()
        elif self.random.random() < 0.3:
            self.crash()

    def crash(self) -> None:
        self.net.restart()
        found = seen(self.net)
        left = browse(self.net, "in")
        done = [job for work in self.committed.values() for job in work.jobs]
        assert sorted(left + done) == sorted(self.jobs)
        for place, there in found.items():
            wanted = [body for body, work in self.committed.items() if place in work.places]
            assert there == wanted, place
        self.connect()


@pytest.mark.parametrize("seed", range(40))
def test_all_or_nothing_through_crashes(seed: int) -> None:
    story = Story(seed)
    for _ in range(25):
        story.step()
    story.crash()
    assert story.committed
