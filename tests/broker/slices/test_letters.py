"""Dead letters that push on one another, over several passes: how many in one, and what a crash
in between leaves."""

from __future__ import annotations

import itertools

import pytest

from ferrymq_broker.slices import LETTER
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import Data, Header, Properties, Rejected
from tests.broker.harness import Network, Sender, text
from tests.broker.lifecycle.letters import figure
from tests.broker.slices.passes import turn
from tests.broker.stores import ManualStore

CHAIN = 40
# Letters of one slice: each costs when it leaves its queue, and when it is published.
LETTERS = 5
SIZE = 2 * LETTERS * LETTER
NAMES = [f"chain-{number}" for number in range(CHAIN + 1)]


def chain(net: Network) -> Sender:
    """Full queues, each of which pushes what is too much on to the next; the last has no bound."""
    for name, following in itertools.pairwise(NAMES):
        policy = QueuePolicy(max_length=1, overflow="dead-letter", dead_letter=following)
        net.declare(name, policy)
    net.declare(NAMES[-1])
    sender = net.connect().sender(None)
    for number, name in enumerate(NAMES[:-1]):
        put(sender, b"%d" % number, name)
    net.run()
    return sender


def put(sender: Sender, body: bytes, address: str = NAMES[0]) -> None:
    """Hand a durable message to the sender's engine: it is not on its way yet."""
    sender.send_sections(Header(durable=True), Properties(to=address), Data(value=body))


def published(net: Network) -> int:
    return sum(int(net.queue(name).published) for name in NAMES)


def waiting_in(net: Network, name: str) -> list[bytes]:
    """The bodies of the messages in one queue."""
    priority_levels = net.queue(name).entries.priority_levels
    return [
        text(entry.message.payload)
        for priority_level in priority_levels
        for entry in priority_level.all()
    ]


def waiting(net: Network) -> list[bytes]:
    """The bodies of all messages in the queues of the chain, sorted."""
    return sorted(body for name in NAMES for body in waiting_in(net, name))


@pytest.mark.parametrize("messages", [1, 3, 20])
def test_no_pass_publishes_more_letters_than_a_slice_has(
    messages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Network(slice_size=SIZE)
    sender = chain(net)
    monkeypatch.setattr(net, "run", lambda: None)
    for number in range(messages):
        put(sender, b"new-%d" % number)
    most = letters = 0
    while sender.client.step() or net.later:
        before = published(net)
        turn(net)
        most = max(most, published(net) - before)
        letters = max(letters, int(net.broker.agenda.letters))
    assert most <= 2 * LETTERS + 1
    assert letters <= 16 + 2 * LETTERS, "the client goes on while its letters pile up"
    assert net.broker.agenda.letters == 0
    assert all(net.queue(name).available == 1 for name in NAMES[:-1])
    assert len(waiting(net)) == CHAIN + messages


def test_whoever_has_nothing_to_do_with_it_is_served_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = Network(slice_size=SIZE)
    sender = chain(net)
    other = net.connect()
    receiver = other.receiver("other", credit=10)
    to = other.sender("other")
    monkeypatch.setattr(net, "run", lambda: None)
    put(sender, b"new")
    sender.client.step()
    assert net.broker.agenda.letters > 0
    to.send_sections(Data(value=b"hello"))
    while not receiver.deliveries:
        assert other.step() or net.later
        turn(net)
    assert net.broker.agenda.letters > 0


@pytest.mark.parametrize("passes", range(0, 2 * CHAIN // LETTERS, 2))
def test_a_crash_between_two_slices_loses_nothing(
    passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Network(store=ManualStore(), slice_size=SIZE)
    sender = chain(net)
    before = waiting(net)
    with monkeypatch.context() as patch:
        patch.setattr(net, "run", lambda: None)
        put(sender, b"new")
        sender.client.step()
        for _ in range(passes):
            turn(net)
        # What has happened is on disk, and the rest never happens.
        assert net.store is not None
        net.store.complete()
    net.restart()
    assert waiting(net) == sorted([*before, b"new"])


def test_letters_of_a_queue_that_is_deleted_are_not_deleted_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = Network(store=ManualStore(), slice_size=SIZE)
    sender = chain(net)
    before = waiting(net)
    with monkeypatch.context() as patch:
        patch.setattr(net, "run", lambda: None)
        put(sender, b"new")
        sender.client.step()
    [name] = [
        name
        for name in NAMES
        if figure(net, name, "overflowed") != figure(net, name, "dead-lettered")
    ]
    # What the queue has goes with it, what it has pushed on does not.
    [kept] = waiting_in(net, name)
    net.broker.begin_pass(net.now)
    net.space.remove(net.queue(name))
    net.broker.finish_pass()
    assert net.store is not None
    while net.store.complete():
        net.broker.on_stable(net.now)
    net.restart()
    found = sorted(body for one in NAMES if one != name for body in waiting_in(net, one))
    assert found == sorted(body for body in [*before, b"new"] if body != kept)


@pytest.mark.parametrize("cause", ["bound", "expiry"])
def test_no_more_letters_wait_than_two_slices_have(cause: str) -> None:
    """They are published in one piece when their queue is deleted."""
    net = Network(slice_size=SIZE)
    net.declare("q", QueuePolicy(dead_letter="dead"))
    net.declare("dead")
    sender = net.connect().sender("q")
    count = 40 * LETTERS
    for number in range(count):
        sender.send_sections(Header(ttl=1000), Data(value=b"%d" % number))
    net.run()
    if cause == "bound":
        net.broker.begin_pass(net.now)
        narrow = QueuePolicy(dead_letter="dead", overflow="dead-letter", max_length=1)
        net.queue("q").change_policy(narrow)
        net.broker.finish_pass()
    else:
        net.now += 2
        net.broker.handle_timeout(net.now)
    most = 0
    while net.queue("dead").published < count // 2:
        most = max(most, int(net.broker.agenda.letters))
        turn(net)
        net.broker.handle_timeout(net.now)
    # A slice of letters that leave, and before these are published another one.
    assert 0 < most <= 2 * SIZE // LETTER + 2
    net.space.remove(net.queue("q"))
    net.run()
    assert net.broker.agenda.letters == 0


def test_a_rejection_does_not_wait_for_letters_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client is told that it is on disk with the batch of its pass."""
    net = Network(store=ManualStore(), slice_size=SIZE)
    net.declare("q", QueuePolicy(dead_letter="dead"))
    net.declare("dead")
    sender = net.connect().sender("q")
    sender.send_sections(Header(durable=True), Data(value=b"held"))
    consumer = net.connect().receiver("q", credit=1)
    net.run()
    (held,) = consumer.take()
    for number in range(10 * LETTERS):
        sender.send_sections(Header(durable=True, ttl=1000), Data(value=b"%d" % number))
    net.run()
    with monkeypatch.context() as patch:
        patch.setattr(net, "run", lambda: None)
        net.advance(2)
        turn(net)
        assert net.broker.agenda.letters > LETTERS
        held.settle(Rejected())
        consumer.client.step()
        assert net.broker.agenda.letters > LETTERS
        assert b"held" in waiting_in(net, "dead")
        assert net.store is not None
        while net.store.complete():
            net.broker.on_stable(net.now)
    net.restart()
    assert b"held" in waiting_in(net, "dead") and b"held" not in waiting_in(net, "q")


def test_a_rejection_is_confirmed_when_it_is_on_disk() -> None:
    store = ManualStore()
    net = Network(store=store)
    net.declare("q", QueuePolicy(dead_letter="dead"))
    net.declare("dead")
    sender = net.connect().sender("q")
    sender.send_sections(Header(durable=True), Data(value=b"held"))
    consumer = net.connect().receiver("q", credit=1)
    net.run()
    (held,) = consumer.take()
    store.held = True
    held.update(Rejected())
    net.run()
    assert not held.remote_settled
    store.release()
    net.run()
    assert held.remote_settled
