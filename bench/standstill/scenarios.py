"""Scenarios: actions of a client that keep the broker busy for long.

A new feature adds its worst case here: a function that prepares, calls `ground.begin()`, and does
the measured action; and a line in `SCENARIOS`.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable
from typing import Final, NamedTuple

from bench.client import Peer, drain, fill
from bench.standstill import large
from bench.standstill.ground import Ground, drop
from ferrymq import Message, blocking
from ferrymq.engine.delivery import IncomingDelivery
from ferrymq.engine.events import DeliveryReceived, Terminated
from ferrymq.engine.link import Link
from ferrymq.engine.receiver import ReceiverLink
from ferrymq_broker.history.series import PERIOD
from ferrymq_types.messaging import Accepted, Source, Target
from ferrymq_types.transactions import Coordinator, Declare, Declared, Discharge, TransactionalState

# Links per session, and per connection.
LINKS: Final = 1_000
SMALL: Final = Message(b"x" * 16).encode()
# Seconds after which the broker's housekeeping collects garbage.
_COLLECTED: Final = 6.0
_STREAM: Final = '[[stream]]\nname = "long"\npartitions = 1\n'
# The number of dead-letter queues, each of which leads to the next.
_CHAIN: Final = 500
DURABLE: Final = Message(b"x" * 16, durable=True).encode()


class Holder(Peer):
    """A client that settles nothing; `deliveries` are those it has received."""

    def __init__(self, port: int, name: str) -> None:
        self.deliveries: list[IncomingDelivery] = []
        super().__init__(port, name)

    def handle(self) -> None:
        """Keep all deliveries that have arrived."""
        for event in self.engine.take_events():
            if isinstance(event, DeliveryReceived):
                self.received += 1
                self.deliveries.append(event.delivery)
            elif isinstance(event, Terminated):
                self.closed = True


# -- links ---------------------------------------------------------------------------------------


def _crowd(ground: Ground, kind: str, count: int, address: str) -> tuple[list[Peer], list[Link]]:
    """Open connections with `LINKS` links each, of a kind, all to one address."""
    peers: list[Peer] = []
    links: list[Link] = []
    for first in range(0, count, LINKS):
        peer = ground.peer(f"crowd-{first}")
        peers.append(peer)
        session = peer.session()
        new: list[Link] = []
        for number in range(first, min(first + LINKS, count)):
            name = f"link-{number}"
            if kind == "sender":
                new.append(session.attach_sender(name, target=Target(address=address)))
                continue
            mode = "copy" if kind == "browser" else "move"
            source = Source(address=address, distribution_mode=mode)
            receiver = session.attach_receiver(name, source=source)
            new.append(receiver)
        peer.until(lambda new=new: all(link.usable for link in new))  # type: ignore[misc]
        for link in new:
            if isinstance(link, ReceiverLink):
                link.set_credit(1)
        peer.flush()
        links += new
    return peers, links


def lost(kind: str) -> Callable[[Ground], None]:
    """Drop all connections of 100 000 links to one queue at once."""

    def run(ground: Ground) -> None:
        peers, _ = _crowd(ground, kind, ground.size(100_000), "crowd")
        ground.begin()
        drop(peers)

    return run


def detached(kind: str) -> Callable[[Ground], None]:
    """Detach 100 000 links to one queue, each with its own frame."""

    def run(ground: Ground) -> None:
        peers, links = _crowd(ground, kind, ground.size(100_000), "crowd")
        ground.begin()
        for link in links:
            link.detach()
        for peer in peers:
            peer.flush()
        for peer in peers:
            peer.until(lambda peer=peer: not peer.engine.channels.links)  # type: ignore[misc]

    return run


def ended(kind: str) -> Callable[[Ground], None]:
    """End the sessions of 100 000 links to one queue."""

    def run(ground: Ground) -> None:
        peers, _ = _crowd(ground, kind, ground.size(100_000), "crowd")
        ground.begin()
        for peer in peers:
            for session in list(peer.engine.channels.by_local.values()):
                session.end()
            peer.flush()
        for peer in peers:
            peer.until(lambda peer=peer: not peer.engine.channels.by_local)  # type: ignore[misc]

    return run


def closed(kind: str) -> Callable[[Ground], None]:
    """Close the connections of 100 000 links to one queue properly."""

    def run(ground: Ground) -> None:
        peers, _ = _crowd(ground, kind, ground.size(100_000), "crowd")
        ground.begin()
        for peer in peers:
            peer.engine.close()
            peer.flush()
        for peer in peers:
            peer.until(lambda peer=peer: peer.closed)  # type: ignore[misc]

    return run


def deleted_with_links(kind: str) -> Callable[[Ground], None]:
    """Delete a queue with 100 000 links."""

    def run(ground: Ground) -> None:
        peers, _ = _crowd(ground, kind, ground.size(100_000), "crowd")
        ground.begin()
        _manage(ground, "DELETE", "queue", "crowd")
        for peer in peers:
            peer.until(
                lambda peer=peer: all(  # type: ignore[misc]
                    link.remote_detached for link in peer.engine.channels.links.values()
                )
            )

    return run


def connections_lost(ground: Ground) -> None:
    """Drop 2 000 connections with one link each at once."""
    peers = []
    for number in range(ground.size(2_000)):
        peer = ground.peer(f"one-{number}")
        peers.append(peer)
        peer.supplied([peer.sender(peer.session(), f"of-{number % 100}")])
    ground.begin()
    drop(peers)


def unsettled_lost(ground: Ground) -> None:
    """Drop a connection with 100 000 unsettled messages."""
    count = ground.size(100_000)
    fill(ground.port, "held", SMALL, count)
    holder = Holder(ground.port, "holder")
    links = 10
    session = holder.session()
    for number in range(links):
        link = session.attach_receiver(f"held-{number}", source=Source(address="held"))
        holder.until(lambda link=link: link.usable)  # type: ignore[misc]
        link.set_credit(count // links)
    holder.until(lambda: holder.received >= count // links * links)
    ground.begin()
    drop([holder])


# -- messages ------------------------------------------------------------------------------------


def purged(ground: Ground) -> None:
    """Purge a queue of 400 000 messages."""
    fill(ground.port, "full", SMALL, ground.size(400_000))
    ground.begin()
    _manage(ground, "PURGE", "queue", "full")


def large_purged(ground: Ground) -> None:
    """Purge a queue of 1 000 messages of 1 MiB, whose memory goes back to the system."""
    fill(ground.port, "full", Message(bytes(large.MIB)).encode(), ground.size(1_000))
    ground.begin()
    _manage(ground, "PURGE", "queue", "full")


def deleted(ground: Ground) -> None:
    """Delete a queue of 400 000 messages."""
    fill(ground.port, "full", SMALL, ground.size(400_000))
    ground.begin()
    _manage(ground, "DELETE", "queue", "full")


def expired(ground: Ground) -> None:
    """Wait for 400 000 messages that expire at the same time."""
    count = ground.size(400_000)
    peer = ground.peer("expiring")
    link = peer.sender(peer.session(), "short")
    end = time.time() + 10 + count / 20_000
    sent = 0
    while sent < count:
        peer.until(lambda: link.credit > 0)
        message = Message(b"x" * 16, ttl=end - time.time()).encode()
        for _ in range(min(link.credit, count - sent, 500)):
            link.send(message)
            sent += 1
    peer.until(lambda: not link.session.outgoing.unsettled)
    ground.begin()
    time.sleep(max(0.0, end - time.time()) + 1.0)


def narrowed(ground: Ground) -> None:
    """Limit a queue of 400 000 messages to one message."""
    fill(ground.port, "full", SMALL, ground.size(400_000))
    ground.begin()
    _manage(ground, "UPDATE", "queue", "full", {"max-length": 1, "overflow": "drop-head"})


def updated(ground: Ground) -> None:
    """Change the policy of a queue with 100 000 consumers."""
    _crowd(ground, "consumer", ground.size(100_000), "crowd")
    ground.begin()
    _manage(ground, "UPDATE", "queue", "crowd", {"max-length": 1})


def records_purged(ground: Ground) -> None:
    """Purge a stream of 1 000 000 records."""
    fill(ground.port, "long", SMALL, ground.size(1_000_000))
    ground.begin()
    _manage(ground, "PURGE", "stream", "long")


def collected(ground: Ground) -> None:
    """Drop 1 000 connections while 1 000 000 messages wait, which causes a full collection."""
    fill(ground.port, "full", SMALL, ground.size(1_000_000))
    peers = [ground.peer(f"one-{number}") for number in range(ground.size(1_000))]
    for peer in peers:
        peer.session()
        peer.flush()
    ground.begin()
    drop(peers)
    time.sleep(_COLLECTED)


def drained(ground: Ground) -> None:
    """Fill a durable queue with 200 000 messages, and drain it with one consumer."""
    count = ground.size(200_000)
    fill(ground.port, "backlog", DURABLE, count)
    ground.begin()
    drain(ground.port, "backlog", count)


def dead_letter_chain(ground: Ground) -> None:
    """Send 100 messages, each of which drops another from 500 full queues, one after the other."""
    fill(ground.port, "chain-0", SMALL, _CHAIN)
    ground.begin()
    fill(ground.port, "chain-0", SMALL, 100)


def _chain(length: int) -> str:
    """Return queues that keep one message each, and dead-letter the others to the next queue."""
    lines: list[str] = []
    for number in range(length):
        lines += [f'[[queue]]\nname = "chain-{number}"\nmax-length = 1\noverflow = "dead-letter"']
        lines += [f'dead-letter = "chain-{number + 1}"']
    return "\n".join([*lines, f'[[queue]]\nname = "chain-{length}"\n'])


# -- transactions ---------------------------------------------------------------------------------


def discharged(fail: bool, work: str) -> Callable[[Ground], None]:
    """Commit or roll back a transaction with 100 000 messages sent or 20 000 acquired."""

    def run(ground: Ground) -> None:
        count = ground.size(100_000 if work == "posts" else 20_000)
        if work != "posts":
            fill(ground.port, "work", SMALL, count)
        peer = Holder(ground.port, "transaction")
        session = peer.session()
        control = session.attach_sender("control", target=Coordinator())
        peer.until(lambda: control.credit > 0)
        declared = control.send(Message(Declare()).encode())
        peer.until(lambda: isinstance(declared.remote_state, Declared))
        assert isinstance(declared.remote_state, Declared)
        id = declared.remote_state.txn_id
        if work == "posts":
            to = peer.sender(session, "work")
            sent = 0
            while sent < count:
                peer.until(lambda: to.credit > 0)
                for _ in range(min(to.credit, count - sent, 500)):
                    to.send(SMALL, state=TransactionalState(txn_id=id), settled=True)
                    sent += 1
            peer.flush()
        else:
            receiver = session.attach_receiver("from-work", source=Source(address="work"))
            peer.until(lambda: receiver.usable)
            receiver.set_credit(count)
            peer.until(lambda: peer.received >= count)
            for delivery in peer.deliveries:
                delivery.update(TransactionalState(txn_id=id, outcome=Accepted()))
            peer.flush()
        ground.begin()
        done = control.send(Message(Discharge(txn_id=id, fail=fail)).encode())
        peer.until(lambda: done.remote_state is not None)
        peer.close()

    return run


# -- monitoring and management --------------------------------------------------------------------


def scraped(path: str) -> Callable[[Ground], None]:
    """Request the metrics of 50 000 queues three times."""

    def run(ground: Ground) -> None:
        _many_queues(ground, ground.size(50_000))
        ground.begin()
        for _ in range(3):
            with urllib.request.urlopen(f"{ground.monitoring}{path}", timeout=60) as answer:
                while answer.read(1 << 20):
                    pass

    return run


def listed(ground: Ground) -> None:
    """List all of 50 000 queues, 1 000 at a time."""
    count = ground.size(50_000)
    _many_queues(ground, count)
    ground.begin()
    for first in range(0, count, 10_000):
        body: dict[str, object] = {"offset": first, "count": 1_000, "entityType": "queue"}
        _manage(ground, "QUERY", "org.amqp.management", "self", body)


def listed_sorted(ground: Ground) -> None:
    """List the first 5 000 of 50 000 queues by an attribute, a few attributes of each."""
    _many_queues(ground, ground.size(50_000))
    ground.begin()
    for sort in ("-available", "max-length", "-in-rate"):
        body: dict[str, object] = {
            "count": 5_000,
            "entityType": "queue",
            "attributeNames": ["name", "available", "acquired", "bytes", "in-rate"],
            "sort": sort,
        }
        _manage(ground, "QUERY", "org.amqp.management", "self", body)


def sampled(ground: Ground) -> None:
    """Take the first samples of 50 000 queues, each of which has got a message."""
    _many_queues(ground, ground.size(50_000), True)
    ground.begin()
    time.sleep(2.5 * PERIOD / 1000)


def topic_deleted(ground: Ground) -> None:
    """Delete a topic with 20 000 subscriptions and their links."""
    _topic(ground, ground.size(20_000))
    ground.begin()
    _manage(ground, "DELETE", "topic", "fan")


def subscribers_lost(ground: Ground) -> None:
    """Drop 20 000 subscribers of one topic at once."""
    peers = _topic(ground, ground.size(20_000))
    ground.begin()
    drop(peers)


def _topic(ground: Ground, count: int) -> list[Peer]:
    peers: list[Peer] = []
    for first in range(0, count, LINKS):
        peer = ground.peer(f"subscribers-{first}")
        peers.append(peer)
        session = peer.session()
        links = [
            session.attach_receiver(
                f"fan-{number}", source=Source(address="fan", capabilities=["topic"])
            )
            for number in range(first, min(first + LINKS, count))
        ]
        peer.until(lambda links=links: all(link.usable for link in links))  # type: ignore[misc]
    return peers


def _many_queues(ground: Ground, count: int, filled: bool = False) -> None:
    peer = ground.peer("maker")
    session = peer.session()
    for first in range(0, count, LINKS):
        links = [
            peer.sender(session, f"queue-{number}")
            for number in range(first, min(first + LINKS, count))
        ]
        peer.supplied(links)
        if filled:
            for link in links:
                link.send(SMALL, settled=True)
            peer.flush()
        peer.detach(links)


def _manage(
    ground: Ground, operation: str, type: str, name: str, body: dict[str, object] | None = None
) -> None:
    """Send a request to the management node, and wait for its answer."""
    with (
        blocking.connect(f"amqp://127.0.0.1:{ground.port}") as connection,
        connection.management(timeout=60) as management,
    ):
        management.request(operation, type, name, body or {})


# -- the list -------------------------------------------------------------------------------------

_LIMITS: Final = """
[limits]
connections = 0
connections-per-address = 0
connections-per-user = 0
unsettled = 1000000
unsettled-per-connection = 1000000
"""


class Scenario(NamedTuple):
    """A misuse of the broker by a client: its name, its action, the broker's configuration besides
    the limits, and whether the broker has a store."""

    name: str
    run: Callable[[Ground], None]
    config: str = ""
    durable: bool = False

    @property
    def configuration(self) -> str:
        """The broker's whole configuration, in TOML."""
        return _LIMITS + self.config


SCENARIOS: Final = [
    Scenario("100 000 consumers of a queue vanish", lost("consumer")),
    Scenario("100 000 senders of a queue vanish", lost("sender")),
    Scenario("100 000 browsers of a queue vanish", lost("browser")),
    Scenario("100 000 consumers of a queue detach", detached("consumer")),
    Scenario("100 000 senders of a queue detach", detached("sender")),
    Scenario("100 000 consumers of a queue end their sessions", ended("consumer")),
    Scenario("100 000 senders of a queue close their connections", closed("sender")),
    Scenario("a queue with 100 000 consumers is deleted", deleted_with_links("consumer")),
    Scenario("a queue with 100 000 senders is deleted", deleted_with_links("sender")),
    Scenario("2 000 connections vanish", connections_lost),
    Scenario("100 000 unsettled deliveries vanish", unsettled_lost),
    Scenario("400 000 messages are purged", purged),
    Scenario("1 000 messages of 1 MiB are purged", large_purged, large.CONFIGURATION),
    Scenario("a queue of 400 000 messages is deleted", deleted),
    Scenario("400 000 messages expire", expired),
    Scenario("400 000 messages are above a new bound", narrowed),
    Scenario("the policy of a queue with 100 000 consumers changes", updated),
    Scenario("1 000 000 records of a stream are purged", records_purged, _STREAM),
    Scenario("1 000 000 messages, and 1 000 connections vanish", collected),
    Scenario("200 000 durable messages are drained", drained, durable=True),
    Scenario("100 messages pass 500 dead-letter queues", dead_letter_chain, _chain(_CHAIN)),
    Scenario("100 000 posts are committed", discharged(False, "posts")),
    Scenario("100 000 posts are rolled back", discharged(True, "posts")),
    Scenario("20 000 acquisitions are committed", discharged(False, "acquisitions")),
    Scenario("20 000 acquisitions are rolled back", discharged(True, "acquisitions")),
    Scenario("/metrics of 50 000 queues", scraped("/metrics")),
    Scenario("/metrics/nodes of 50 000 queues", scraped("/metrics/nodes")),
    Scenario("50 000 queues are listed", listed),
    Scenario("50 000 queues are sorted and listed", listed_sorted),
    Scenario("50 000 queues are sampled", sampled),
    Scenario("a topic with 20 000 subscriptions is deleted", topic_deleted),
    Scenario("20 000 subscribers of a topic vanish", subscribers_lost),
    Scenario("90 MiB for 10 browsers that do not read", large.unread(90, 10), large.CONFIGURATION),
    Scenario("50 MiB for 30 subscribers", large.fanned_out(50, 30), large.CONFIGURATION),
    Scenario("1 MiB for 500 subscribers", large.fanned_out(1, 500), large.CONFIGURATION),
    Scenario("60 MiB in and out", large.passed_on(60), large.CONFIGURATION),
    Scenario("60 MiB in and out, stored", large.passed_on(60, True), large.CONFIGURATION, True),
    Scenario("60 MiB, delivered again", large.passed_on(60, failures=2), large.CONFIGURATION),
    Scenario("60 MiB with a ttl", large.passed_on(60, ttl=60), large.CONFIGURATION),
    Scenario("60 MiB of a stream for 10 readers", large.recorded(60, 10), large.CONFIGURATION),
]
