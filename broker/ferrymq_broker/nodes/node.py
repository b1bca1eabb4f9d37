"""The contract of every kind of node with the rest of the broker, and how a node gets its turn.

One module because `Node`, the `Space` that it lives in, the `Agenda` that gives it its turn and the
`Producer` that publishes to it refer to each other.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.chunk_budget import ChunkBudget
from ferrymq_broker.nodes.dead_letter_index import DeadLetterIndex
from ferrymq_broker.nodes.eviction import Eviction, LinkEnd
from ferrymq_broker.nodes.fences import FenceRegistry
from ferrymq_broker.slices import TURN, SlicedTask, Slices
from ferrymq_broker.store.changes import Changes, Stored
from ferrymq_broker.store.tables import NODE
from ferrymq_broker.timers import TimerHeap

if TYPE_CHECKING:
    from ferrymq_broker.access.access import ConnectionAccess
    from ferrymq_broker.nodes.consumer import Consumer
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.link_terms import SourceTerms, TargetTerms
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.store.store import Store
    from ferrymq_types.transport import Error

# How long a node lives (AMQP 1.0 §3.5.10–13). Plain numbers: asked for every message.
PERMANENT: Final = 0
DELETE_ON_CLOSE: Final = 1
DELETE_ON_NO_LINKS: Final = 2
DELETE_ON_NO_MESSAGES: Final = 3
DELETE_ON_NO_LINKS_OR_MESSAGES: Final = 4

# What `Node.room` answers when it never runs out.
BOUNDLESS: Final = 0x7FFF_FFFF_FFFF_FFFF


@final
class Refusal:
    """Why a node did not take in a message.

    `released` says that the message is good but went nowhere, and is the sender's again
    (AMQP 1.0 §3.4.4); otherwise it is rejected with the condition and the description. `info` goes
    into the error. `partly` says that others took it which it was handed on to.
    """

    __slots__ = ("condition", "description", "released", "info", "partly")

    def __init__(
        self,
        condition: str,
        description: str,
        released: bool = False,
        info: dict[str, object] | None = None,
        partly: bool = False,
    ) -> None:
        self.condition = condition
        self.description = description
        self.released = released
        self.info = info
        self.partly = partly


# Nodes that have their turns in one pass; the others have theirs in slices.
_MOST: Final = 1_000


class Producer:
    """A producer, as a node sees it: a link that publishes to the node."""

    __slots__ = ()

    def supply(self) -> None:
        """Give the sender credit: there is room again."""

    def meter(self) -> None:
        """Count the credit that the sender has with what the node has promised: the node has a
        bound."""

    def narrow(self) -> None:
        """Take back the credit above a fair share: the node has promised more than it has room
        for."""

    def evict(self, error: Error) -> None:
        """End the link with `error`: the node is going away."""


class Space:
    """The virtual host, as a node that lives in it sees it.

    `durables` has the topics with durable subscriptions, by what identifies these: a client has one
    subscription of a name, whichever topic it is to. There are no more of these than `max_nodes`,
    and no more nodes, beside `services` of the broker's own. `awaiting` has the nodes that want to
    be told of the end of a session or connection, by its number. `dead_letter_index` is where the
    dead letters of its queues go. `publishers` has what each connection may do, by its number, as
    long as it is there, and `strangers` is what one may do that is gone, None where there are
    rules: a message is returned only where its publisher may send. `leaving` has who is to be told
    when a deleted node has come to its end. `alternates` has the addresses that exchanges send to
    what they have no binding for.
    """

    __slots__ = (
        "name",
        "agenda",
        "timers",
        "max_nodes",
        "services",
        "durables",
        "awaiting",
        "fences",
        "dead_letter_index",
        "publishers",
        "strangers",
        "leaving",
        "alternates",
    )

    def __init__(
        self, name: str, agenda: Agenda, timers: TimerHeap, max_nodes: int = BOUNDLESS
    ) -> None:
        self.name = name
        self.max_nodes = max_nodes
        self.services = 0
        self.agenda = agenda
        self.timers = timers
        self.durables: dict[str, Node] = {}
        self.awaiting: dict[int, dict[Node, None]] = {}
        self.fences = FenceRegistry(name, agenda.changes, max_nodes)
        self.dead_letter_index = DeadLetterIndex(self)
        self.publishers: dict[int, ConnectionAccess] = {}
        self.strangers: ConnectionAccess | None = None
        self.leaving: dict[Node, LinkEnd] = {}
        self.alternates: dict[Node, str] = {}

    def party_gone(self, number: i64) -> None:
        """Tell the nodes that wait for it of the end of a session or connection, after all its
        links."""
        nodes = self.awaiting.pop(number, None)
        if nodes is not None:
            for node in nodes:
                node.party_gone(number)

    def find(self, address: str) -> Node | None:
        """Return the node that an address names now, aliases followed; never makes one."""
        return None

    def canonical(self, address: str) -> str:
        """Return what an address stands for, aliases followed."""
        return address

    def passes(self, address: str, name: str) -> bool:
        """Return whether the alias `name` is on the way from an address to what that stands for."""
        return address == name

    def target(self, address: str, access: ConnectionAccess | None = None) -> Node:
        """Return what takes messages sent to an address; `access` is asked whether it may be made.
        Raises `BrokerError` if nothing does."""
        raise BrokerError("amqp:not-found", f"there is no node {address[:200]!r}")

    def existing_target(self, address: str) -> Node | None:
        """Return the `target` if it is there; nothing is made for it. None if there is no such
        node."""
        return None

    def remove(self, node: Node) -> None:
        """Forget a node that has come to its end, and end its links."""


class Node(Stored):
    """A node: something an address names (AMQP 1.0 §2.1.2). `address` is unique in its `space`.

    `lifetime` is one of the five above. `producers` are the links that publish, `links` counts all
    that are attached, whichever way they go. `waiting_for_room` are producers without all the
    credit they would have if there were room; `promised` is the credit that links have while there
    is a bound to it (`room`). `creator` is whether the link that a dynamic node was made for is
    still there. `origin` is who wanted it: ``configuration``, ``management``, or empty for those
    who use it. `owner` is the number of the connection that a dynamic node was made for, 0 for any
    other node. `declared` is whether the configuration declares it by name, so that it stays though
    unused.
    """

    __slots__ = (
        "address",
        "space",
        "agenda",
        "lifetime",
        "deleted",
        "ending",
        "may_wait",
        "dirty",
        "links",
        "producers",
        "waiting_for_room",
        "promised",
        "fronts",
        "creator",
        "watchers",
        "origin",
        "owner",
        "declared",
    )

    def __init__(self, address: str, space: Space, lifetime: i64 = PERMANENT) -> None:
        super().__init__()
        self.address = address
        self.space = space
        self.agenda = space.agenda
        self.lifetime: i64 = lifetime
        self.deleted = False
        # Once it is deleted, what ends its links.
        self.ending: Eviction | None = None
        # Whether its turn may come in another pass than what it is for: nothing is lost meanwhile
        # if the broker ends.
        self.may_wait = False
        # True while the node is on the agenda.
        self.dirty = False
        self.links: i64 = 0
        self.producers: dict[Producer, None] = {}
        # Those that have waited longest first; None without any.
        self.waiting_for_room: OrderedDict[Producer, None] | None = None
        self.promised: i64 = 0
        # Nodes whose producers have their room here; None without any.
        self.fronts: dict[Node, None] | None = None
        self.creator = False
        # Nodes that hand messages on to this one and must know when it goes; None without any.
        self.watchers: list[Node] | None = None
        self.origin = ""
        self.owner: i64 = 0
        self.declared = False

    @property
    def kind(self) -> str:
        """What it is, as configuration, management and capabilities call it: ``queue`` …"""
        return "node"

    # -- links ---------------------------------------------------------------------------

    def open_source(self, terms: SourceTerms) -> Node:
        """Return the node a link with these terms is to consume from: itself, or a part of it.

        Fills in what `terms` grants. Raises `BrokerError` for what it cannot do.
        """
        raise BrokerError("amqp:not-allowed", f"{self.address!r} cannot be consumed from")

    def close_source(self, terms: SourceTerms, closed: bool) -> None:
        """Act upon the end of a link that `open_source` let in: `closed`, or only detached or
        lost.

        Called on the node that was asked, after `unsubscribe` on the one it answered with.
        """

    def open_target(self, terms: TargetTerms) -> Node:
        """Return the node a link with these terms is to publish to. Raises `BrokerError`."""
        return self.target(terms.part)

    def target(self, part: str) -> Node:
        """Return what takes messages sent to the part of this node, ``ADDRESS::PART``.

        Raises `BrokerError` when there is no such part, or none that takes messages.
        """
        if part:
            raise BrokerError("amqp:not-found", f"{self.address!r} has no part {part[:200]!r}")
        return self

    # -- messages in ---------------------------------------------------------------------

    def publish(self, message: BrokerMessage) -> Refusal | None:
        """Take in a message; None if that was done."""
        return Refusal("amqp:not-allowed", f"{self.address!r} takes no messages")

    def keeps(self, message: BrokerMessage) -> bool:
        """Return whether the message, once it is taken in, is there after a crash."""
        return self.store_id != 0 and message.durable

    def reserve(self, message: BrokerMessage, holders: list[Node]) -> Refusal | None:
        """Ask whether `publish` would take in the message, which is to come later; None if so.

        Keeps room for it where room is counted: each node that does so is added to `holders` and
        is told with `unreserve` when the message comes, or does not.
        """
        return Refusal("amqp:not-allowed", f"{self.address!r} takes no messages")

    def unreserve(self, message: BrokerMessage) -> None:
        """Give up the room that was kept for the message."""

    def room(self) -> i64:
        """Return how many more messages it could take in at this moment, whatever is `pledged`."""
        return BOUNDLESS

    def pledged(self) -> i64:
        """Return the credit that counts against its room: what it has promised, and its
        `fronts`."""
        total = self.promised
        fronts = self.fronts
        if fronts is not None:
            for front in fronts:
                total += front.pledged()
        return total

    def ways_in(self) -> list[Node]:
        """Return the nodes that hand messages on to this one, whose producers have room as it
        has."""
        found = [] if self.watchers is None else list(self.watchers)
        space = self.space
        for exchange, address in space.alternates.items():
            if space.find(address) is self:
                found.append(exchange)
        return found

    def grant_room(self) -> None:
        """Share room that there is again among the producers that wait, the longest waiting
        first. A node with a bound calls it when messages have left."""
        waiting_for_room = self.waiting_for_room
        if waiting_for_room is None:
            return
        turns: i64 = len(waiting_for_room)
        while turns > 0 and waiting_for_room and self.room() > self.pledged():
            turns -= 1
            producer, _ = waiting_for_room.popitem(last=False)
            producer.supply()

    def wait_for_room(self, producer: Producer) -> None:
        """Note that the producer has less credit than it would have if there were room."""
        if self.waiting_for_room is None:
            self.waiting_for_room = OrderedDict()
        # Whoever waits already keeps its place.
        self.waiting_for_room[producer] = None

    def stop_waiting_for_room(self, producer: Producer) -> None:
        """Forget that the producer waits for room."""
        waiting_for_room = self.waiting_for_room
        if waiting_for_room is not None:
            waiting_for_room.pop(producer, None)

    def regain_room(self) -> None:
        """Share room that was promised, and perhaps not used, among the waiting producers at the
        end of the pass. A node that has its room behind it tells the nodes there."""
        if self.waiting_for_room and not self.dirty:
            self.touch()

    # -- consumers -----------------------------------------------------------------------

    def subscribe(self, consumer: Consumer) -> None:
        """Add a consumer, which gets messages once it is awake."""

    def unsubscribe(self, consumer: Consumer) -> None:
        """Forget a consumer that is leaving; what it holds has been given back before."""

    def wake(self, consumer: Consumer) -> None:
        """Offer the consumer messages: it may be able to take some again."""

    def count_available(self, consumer: Consumer) -> i64:
        """Return how many messages wait for credit of the consumer: no fewer, and 0 if there are
        none.

        Nothing is looked at one by one.
        """
        return 0

    def want_drained(self, consumer: Consumer) -> None:
        """Tell the consumer, once, when there is nothing left for it."""

    def dispatch(self) -> None:
        """Offer messages to consumers until one of the two runs out, and room to producers."""
        if self.waiting_for_room:
            self.grant_room()

    def bookmark(self, consumer: Consumer) -> list[int] | None:
        """Return where a consumer that takes nothing out has got to, for `rewind`; None if that is
        not known."""
        return None

    def rewind(self, consumer: Consumer, bookmark: list[int]) -> None:
        """Show the consumer again what it has been shown since the bookmark."""

    # -- outcomes of what a consumer holds -------------------------------------------------

    def remove(self, consumer: Consumer, entry: Entry) -> None:
        """Take out a message that was accepted."""

    def reject(self, consumer: Consumer, entry: Entry, error: Error | None) -> None:
        """Take out a message that the consumer found invalid (AMQP 1.0 §3.4.3)."""

    def give_back(self, consumer: Consumer, entry: Entry, failed: bool, elsewhere: bool) -> None:
        """Return the message to its place (AMQP 1.0 §3.4.4–5)."""

    def hand_over(self, entry: Entry, before: Consumer, after: Consumer) -> None:
        """Pass the message on to another consumer: one that stands in for a link that leaves, or
        a link that has come back."""
        before.unhold(entry)
        after.hold(entry)

    def amend(self, entry: Entry, message: BrokerMessage) -> None:
        """Change a message to which the consumer that holds it has added (AMQP 1.0 §3.4.5)."""
        entry.message = message

    def message_of(self, entry: Entry) -> BrokerMessage | None:
        """Return the message of an entry that a consumer holds; None if it cannot be read from
        disk."""
        return entry.message

    def pause_dispatch(self) -> None:
        """Hand out nothing until `resume_dispatch`: messages are about to return in several passes,
        and newer ones must not overtake them. Calls are counted."""

    def resume_dispatch(self) -> None:
        """Hand out messages again: those that were to return have returned."""

    # -- what there is to know -------------------------------------------------------------

    def message_count(self) -> i64:
        """Count the messages in it, held ones included."""
        return 0

    def describe(self) -> dict[str, object]:
        """Return its settings and figures by their public names, for management and metrics."""
        return {"name": self.address, "type": self.kind}

    def figures(self) -> dict[str, int]:
        """Return the numbers of what `describe` says, for metrics, which ask every node."""
        found: dict[str, int] = {}
        for name, value in self.describe().items():
            if isinstance(value, int) and not isinstance(value, bool):
                found[name] = value
        return found

    # -- turns and the end -----------------------------------------------------------------

    def delete(self, error: Error) -> None:
        """End every link with `error` and drop everything: in slices, until `ending` is over."""
        self.deleted = True
        if self.store_id != 0:
            self.agenda.changes.drop(NODE, self.store_id, 0)
            self.store_id = 0
        self.waiting_for_room = None
        watchers = self.watchers
        if watchers is not None:
            self.watchers = None
            for watcher in watchers:
                watcher.node_gone(self)
        ending = Eviction(self, error)
        self.ending = ending
        self.agenda.slices.do(ending)

    def consumers_of(self) -> list[Consumer]:
        """Return the links that consume from it, which end with it."""
        return []

    def parts(self) -> list[Node]:
        """Nodes that are deleted with it."""
        return []

    def drop_rest(self, slices: Slices) -> bool:
        """Drop what the deleted node has as far as the slice allows, after its links and parts;
        return whether that is all."""
        return True

    def node_gone(self, node: Node) -> None:
        """Act upon the deletion of a node that this one watches (`watchers`)."""

    def party_gone(self, number: i64) -> None:
        """Act upon the end of a session or connection that this node awaits (`Space.awaiting`)."""

    def link_opened(self) -> None:
        """Count a link that has been attached."""
        self.links += 1

    def link_closed(self) -> None:
        """Count a link that is gone; end the node if it lived for that link."""
        self.links -= 1
        if self.lifetime != PERMANENT:
            self.reconsider_life()

    def reconsider_life(self) -> None:
        """Go, if the lifetime policy says so now; the creating link's end is told otherwise."""
        lifetime = self.lifetime
        if self.deleted or lifetime in (PERMANENT, DELETE_ON_CLOSE):
            return
        linked = self.links > 0
        filled = self.message_count() > 0
        if lifetime == DELETE_ON_NO_LINKS:
            keep = linked
        elif lifetime == DELETE_ON_NO_MESSAGES:
            keep = filled or self.creator
        else:
            keep = linked or filled
        if not keep:
            self.space.remove(self)

    def end_unused(self) -> None:
        """Go, for nobody has used it for so long (`auto_delete`); a declared node stays."""
        if not self.declared:
            self.space.remove(self)

    def touch(self) -> None:
        """Ask for a turn to dispatch at the end of this pass."""
        if not self.dirty:
            self.dirty = True
            self.agenda.nodes.append(self)


class MessagePager:
    """The part that takes messages of all nodes out of memory: see `nodes/paging/pager.py`."""

    __slots__ = ()


@final
class Agenda:
    """The nodes that are to dispatch at the end of the current pass, and the time of the pass.

    `now` is what durations are measured with: milliseconds that go on evenly, whatever is done to
    the wall clock. The wall clock is `wall`, in milliseconds since the Unix epoch; `dates` are the
    timers that are due by it. When the broker starts the two are equal; a wall clock that is set
    changes `wall` alone. A *deadline* is a moment by `now` if it is above 0; below 0 it is a date
    with its sign changed. So one number is enough for either. `held` is how many bytes of messages
    all nodes hold, each message counted once. `changes` is where nodes write what is to be on disk,
    `store` what reads it again; None without one. `bodies` are the ids of the messages that are
    stored apart from their entries. `pager` takes messages out of memory, None if nobody does;
    `emptied` of those that it took out belong to several entries. `letters` counts dead letters
    that have left a queue and have not been published. `remembered` has the numbers of consumers
    that come back (`Consumer.known_as`). `chunk_budget` bounds what is made into chunks, `slices`
    what is done in one pass of work that may take long.
    """

    __slots__ = (
        "nodes",
        "now",
        "wall",
        "dates",
        "held",
        "changes",
        "store",
        "bodies",
        "pager",
        "emptied",
        "letters",
        "remembered",
        "chunk_budget",
        "slices",
        "_waiting",
    )

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.now: i64 = 0
        self.wall: i64 = 0
        self.dates = TimerHeap()
        self.held: i64 = 0
        self.changes = Changes()
        self.store: Store | None = None
        self.bodies: dict[BrokerMessage, int] = {}
        self.pager: MessagePager | None = None
        self.emptied: i64 = 0
        self.letters: i64 = 0
        # `OWNER` is always among them.
        self.remembered: set[int] = {0}
        self.chunk_budget = ChunkBudget()
        self.slices = Slices()
        self._waiting: _Turns | None = None

    def date_of(self, deadline: i64) -> i64:
        """Return the date of a deadline, as the wall clock goes at present."""
        return deadline - self.now + self.wall if deadline > 0 else -deadline

    def moment_of(self, date: i64) -> i64:
        """Return the moment by `now` of a date that is past, at least 1.

        A date that is still to come was taken from a wall clock that was ahead: no time has passed
        since.
        """
        passed = self.wall - date
        moment = self.now - passed if passed > 0 else self.now
        return moment if moment > 0 else 1

    def left(self, deadline: i64) -> i64:
        """Return the milliseconds that are left until a deadline, which is not 0."""
        return deadline - self.now if deadline > 0 else -deadline - self.wall

    def run(self) -> None:
        """Give every node on the agenda its turn; those it puts on meanwhile too.

        What is too much for one pass waits for another one, as far as it may.
        """
        while self.nodes:
            nodes = self.nodes
            self.nodes = []
            turns: i64 = 0
            try:
                for node in nodes:
                    turns += 1
                    if turns > _MOST and node.may_wait:
                        self.put_off(node)
                        continue
                    node.dirty = False
                    node.dispatch()
            except BaseException:
                # A mistake is to cost the connection of this pass, and the other nodes nothing.
                self.nodes = nodes[turns:] + self.nodes
                raise

    def put_off(self, node: Node) -> None:
        """Postpone the turn of the node to another slice."""
        waiting = self._waiting
        if waiting is None:
            waiting = _Turns()
            self._waiting = waiting
        waiting.nodes.append(node)
        self.slices.add(waiting)


@final
class _Turns(SlicedTask):
    """Nodes whose turn was too much for a slice."""

    __slots__ = ("nodes",)

    def __init__(self) -> None:
        super().__init__()
        self.nodes: deque[Node] = deque()

    def go_on(self, slices: Slices) -> bool:
        """Give as many nodes their turns as the slice allows."""
        nodes = self.nodes
        while nodes:
            if slices.is_spent():
                return False
            slices.spend(TURN)
            node = nodes.popleft()
            node.dirty = False
            node.dispatch()
        return True
