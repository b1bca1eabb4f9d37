"""The contract of every kind of node with the rest of the broker, and the agenda, which gives each
node its turn.

One module because `Node`, the `Space` that it lives in, the `Agenda` that gives it its turn and the
`Producer` that publishes to it refer to each other.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq.partitioning import partition_of_key
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.chunk_budget import ChunkBudget
from ferrymq_broker.nodes.dead_letter_index import DeadLetterIndex
from ferrymq_broker.nodes.eviction import Eviction, LinkEnd
from ferrymq_broker.nodes.fences import FenceRegistry
from ferrymq_broker.slices import TURN, SlicedTask, Slices
from ferrymq_broker.store.changes import Changes, Stored
from ferrymq_broker.store.tables import NODE
from ferrymq_broker.timers import Timer, TimerHeap
from ferrymq_broker.values.partitioner import Partitioner

if TYPE_CHECKING:
    from ferrymq_broker.access.access import ConnectionAccess
    from ferrymq_broker.nodes.consumer import Consumer
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.link_terms import SourceTerms, TargetTerms
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.personality import Personality
    from ferrymq_broker.store.store import Store
    from ferrymq_types.transport import Error

# The lifetimes of a node (AMQP 1.0 §3.5.10–13). Plain numbers, because they are compared for every
# message.
PERMANENT: Final = 0
DELETE_ON_CLOSE: Final = 1
DELETE_ON_NO_LINKS: Final = 2
DELETE_ON_NO_MESSAGES: Final = 3
DELETE_ON_NO_LINKS_OR_MESSAGES: Final = 4

# The result of `Node.room` when the room is unlimited.
BOUNDLESS: Final = 0x7FFF_FFFF_FFFF_FFFF


@final
class Refusal:
    """The reason why a node did not take a message.

    `released` says that the message is good but went nowhere; it belongs to the sender again (AMQP
    1.0 §3.4.4). Otherwise the message is rejected with the condition and the description; `info`
    goes into the error. `partly` says that some of the nodes it was sent on to have taken it.
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
        self.condition: str = condition
        self.description: str = description
        self.released: bool = released
        self.info: dict[str, object] | None = info
        self.partly: bool = partly


# How many nodes have their turns in one pass; the others have theirs in slices.
_MOST: Final = 1_000


class Producer:
    """A producer, as a node sees it: a link that publishes to the node."""

    __slots__ = ()

    def supply(self) -> None:
        """Give the sender credit, because there is room again."""

    def meter(self) -> None:
        """Count the credit that the sender has as promised by the node, which has a bound now."""

    def narrow(self) -> None:
        """Take back the credit above a fair share: the node has promised more than it has room
        for."""

    def evict(self, error: Error) -> None:
        """End the link with `error`: the node is going away."""


class ClaimWaiter(Timer):
    """The interface of an attach that waits for what its link will own, here a session. It is the
    timer of its time-out."""

    __slots__ = ()

    def proceed(self) -> None:
        """Go on with the attach: a session is free."""

    def fail(self, error: BrokerError) -> None:
        """Refuse the link with this error."""

    def on_time(self, now: i64) -> None:
        """Refuse the link, because no session has become free in time."""
        self.fail(no_session())


def no_session() -> BrokerError:
    """Return the error of a link that got no session in time."""
    return BrokerError("ferrymq:timeout", "no session with messages was free in time")


class NodeHistory:
    """The interface of the samples of one node, or of a virtual host (`history/`)."""

    __slots__ = ()


class Space:
    """The virtual host, as its nodes see it.

    `durables` has the topics with durable subscriptions, by the identity of the subscription: a
    client has one subscription of a name, whatever the topic. There are at most `max_nodes` durable
    subscriptions and at most `max_nodes` nodes, not counting the broker's own `services`.
    `awaiting` has, by the number of a session or connection, the nodes that want to be told of its
    end. `dead_letter_index` has the dead-letter addresses of the queues. `publishers` has the
    rights of each open connection, by its number; `strangers` are the rights of a closed
    connection, None if the virtual host has no rules. They are needed because a message is returned
    only to where its publisher may send. `leaving` has the objects to be told when a deleted node
    is removed completely. `alternates` has the alternate addresses of exchanges. `partitioner`
    chooses the partition of a stream for a key. `advertised` is the URL at which clients find the
    broker, empty if it has not been told. `position_words` has constants of selectors that
    mean the start or the end of a stream. `routing_annotation` is the annotation that has the
    routing key of a message before anything else, `copies_annotation` the one that has a list of
    further routing keys; empty without one. `personality` is what clients
    of another broker expect; None without any. `forwarding` has the queues that are sending on the
    present message, the first one first. `history` has the samples of all nodes together; None
    without history.
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
        "partitioner",
        "advertised",
        "position_words",
        "routing_annotation",
        "copies_annotation",
        "personality",
        "forwarding",
        "history",
    )

    def __init__(
        self, name: str, agenda: Agenda, timers: TimerHeap, max_nodes: int = BOUNDLESS
    ) -> None:
        self.name: str = name
        self.max_nodes: int = max_nodes
        self.services: int = 0
        self.personality: Personality | None = None
        self.forwarding: list[Node] = []
        self.history: NodeHistory | None = None
        self.agenda: Agenda = agenda
        self.timers: TimerHeap = timers
        self.durables: dict[str, Node] = {}
        self.awaiting: dict[int, dict[Node, None]] = {}
        self.fences: FenceRegistry = FenceRegistry(name, agenda.changes, max_nodes)
        self.dead_letter_index: DeadLetterIndex = DeadLetterIndex(self)
        self.publishers: dict[int, ConnectionAccess] = {}
        self.strangers: ConnectionAccess | None = None
        self.leaving: dict[Node, LinkEnd] = {}
        self.alternates: dict[Node, str] = {}
        self.partitioner: Partitioner = partition_of_key
        self.advertised: str = ""
        self.position_words: dict[object, int] = {}
        self.routing_annotation: str = ""
        self.copies_annotation: str = ""

    def owner_of(self, address: str) -> str:
        """Return the address of the queue that has, or would have, a sub-queue at this address;
        empty if it is not the address of a sub-queue."""
        return ""

    def expect_free(self, address: str) -> None:
        """Raise `BrokerError` if the address is taken."""

    def insert_owned(self, node: Node) -> None:
        """Insert a new node that another node owns; it does not count for `max_nodes`."""

    def keep_owned(self, node: Node) -> None:
        """Store a new node that another node owns."""

    def changed(self, node: Node) -> None:
        """Store a node whose policy or origin has changed."""

    def party_gone(self, number: i64) -> None:
        """Tell the waiting nodes of the end of a session or connection, after the end of all its
        links."""
        nodes = self.awaiting.pop(number, None)
        if nodes is not None:
            for node in nodes:
                node.party_gone(number)

    def find(self, address: str) -> Node | None:
        """Return the node that an address names, with aliases resolved; never create one."""
        return None

    def canonical(self, address: str) -> str:
        """Return the address that an address stands for, with aliases resolved."""
        return address

    def meant_by(self, named: str) -> str:
        """Return the address that a client means, as `canonical` does. Clients of another broker
        may have other addresses for nodes than the broker."""
        return self.canonical(named)

    def passes(self, address: str, name: str) -> bool:
        """Return whether the alias `name` is used when an address is resolved."""
        return address == name

    def target(self, address: str, access: ConnectionAccess | None = None) -> Node:
        """Return the target of messages sent to an address; `access` decides whether it may be
        created. Raises `BrokerError` if there is none."""
        raise BrokerError(
            "amqp:not-found",
            f"there is no node {address[:200]!r}",
        )

    def existing_target(self, address: str) -> Node | None:
        """Return the `target` if it exists, without creating it; None if there is no such node."""
        return None

    def remove(self, node: Node) -> None:
        """Remove a deleted node from the address space and end its links."""


class Node(Stored):
    """A node: something that an address names (AMQP 1.0 §2.1.2). `address` is unique in its
    `space`.

    `lifetime` is one of the five above. `producers` are the links that publish; `links` counts all
    attached links, in both directions. `waiting_for_room` has the producers that would have more
    credit if there were room; `promised` is the credit of all producers, counted while the node has
    a bound (`room`). `creator` is whether the link that a dynamic node was created for still
    exists. `origin` is who created the node: ``configuration``, ``management``, or empty for a
    client's link. `owner` is the number of the connection that a dynamic node was created for, 0
    for any other node. `declared` is whether the configuration declares the node by name, so that
    it stays even if unused. `history` has the samples of the node; None until the first one.
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
        "history",
    )

    def __init__(self, address: str, space: Space, lifetime: i64 = PERMANENT) -> None:
        super().__init__()
        self.address: str = address
        self.space: Space = space
        self.agenda: Agenda = space.agenda
        self.lifetime: i64 = lifetime
        self.deleted: bool = False
        # The task that ends the links of the node, once it is deleted.
        self.ending: Eviction | None = None
        # Whether the node may have its turn in a later pass: nothing is lost if the broker ends
        # before.
        self.may_wait: bool = False
        # Whether the node is on the agenda.
        self.dirty: bool = False
        self.links: i64 = 0
        self.producers: dict[Producer, None] = {}
        # The producers that wait for room, the longest waiting first; None without any.
        self.waiting_for_room: OrderedDict[Producer, None] | None = None
        self.promised: i64 = 0
        # Nodes in front whose producers use the room of this node; None without any.
        self.fronts: dict[Node, None] | None = None
        self.creator: bool = False
        # Nodes that publish to this one and must know when it is deleted; None without any.
        self.watchers: list[Node] | None = None
        self.origin: str = ""
        self.owner: i64 = 0
        self.declared: bool = False
        self.history: NodeHistory | None = None

    @property
    def kind(self) -> str:
        """Return the kind in the words of configuration, management and capabilities: ``queue``
        …"""
        return "node"

    # -- links ---------------------------------------------------------------------------

    def open_source(self, terms: SourceTerms) -> Node:
        """Return the node that a link with these terms consumes from: this node or a part of it.

        Fills in what `terms` grants. Raises `BrokerError` if the terms cannot be met.
        """
        raise BrokerError("amqp:not-allowed", f"{self.address!r} cannot be consumed from")

    def close_source(self, terms: SourceTerms, closed: bool) -> None:
        """Act upon the end of a link that `open_source` accepted: `closed`, or only detached or
        lost.

        Called on the node that got the attach, after `unsubscribe` on the node that `open_source`
        returned.
        """

    def claim(self, terms: SourceTerms) -> bool:
        """Take what a link with these terms will own, here a session; return false if the link has
        to wait for it.

        Called on the node that `open_source` returned. Raises `BrokerError`.
        """
        return True

    def unclaim(self, terms: SourceTerms) -> None:
        """Give up what `claim` took, because the link is not attached."""

    def await_claim(self, waiter: ClaimWaiter, terms: SourceTerms) -> None:
        """Tell the waiter when `claim` can succeed for these terms, or when their time is over."""

    def stop_waiting(self, waiter: ClaimWaiter) -> None:
        """Tell the waiter nothing any more."""

    def open_target(self, terms: TargetTerms) -> Node:
        """Return the node that a link with these terms publishes to. Raises `BrokerError`."""
        return self.target(terms.part)

    def target(self, part: str) -> Node:
        """Return the target of messages sent to a part of this node, ``ADDRESS::PART``.

        Raises `BrokerError` if there is no such part, or if it accepts no messages.
        """
        if part:
            raise BrokerError("amqp:not-found", f"{self.address!r} has no part {part[:200]!r}")
        return self

    def sub_queue(self, name: str) -> Node | None:
        """Return the queue of this name that belongs to the node; None if there is none."""
        return None

    # -- messages in ---------------------------------------------------------------------

    def publish(self, message: BrokerMessage) -> Refusal | None:
        """Take in a message; None if that was done."""
        return Refusal("amqp:not-allowed", f"{self.address!r} accepts no messages")

    def keeps(self, message: BrokerMessage) -> bool:
        """Return whether the message will survive a crash once this node has taken it."""
        return self.store_id != 0 and message.durable

    def reserve(self, message: BrokerMessage, holders: list[Node]) -> Refusal | None:
        """Return None if `publish` will take the message, which comes later, else the reason why
        not.

        A node that counts room keeps room for the message and is appended to `holders`. It is told
        with `unreserve` when the message has come, or will not come.
        """
        return Refusal("amqp:not-allowed", f"{self.address!r} accepts no messages")

    def unreserve(self, message: BrokerMessage) -> None:
        """Give up the room that was kept for the message."""

    def room(self) -> i64:
        """Return how many more messages fit at this moment, without regard to `pledged`."""
        return BOUNDLESS

    def pledged(self) -> i64:
        """Return the credit that uses the room: what this node and its `fronts` have promised."""
        total = self.promised
        fronts = self.fronts
        if fronts is not None:
            for front in fronts:
                total += front.pledged()
        return total

    def ways_in(self) -> list[Node]:
        """Return the nodes that publish to this one and whose producers use its room."""
        found = [] if self.watchers is None else list(self.watchers)
        space = self.space
        for exchange, address in space.alternates.items():
            if space.find(address) is self:
                found.append(exchange)
        return found

    def grant_room(self) -> None:
        """Share new room among the waiting producers, the longest waiting first. A node with a
        bound calls this when messages have left."""
        waiting_for_room = self.waiting_for_room
        if waiting_for_room is None:
            return
        turns: i64 = len(waiting_for_room)
        while turns > 0 and waiting_for_room and self.room() > self.pledged():
            turns -= 1
            producer, _ = waiting_for_room.popitem(last=False)
            producer.supply()

    def wait_for_room(self, producer: Producer) -> None:
        """Add a producer that would have more credit if there were room."""
        if self.waiting_for_room is None:
            self.waiting_for_room = OrderedDict()
        # A producer that waits already keeps its place.
        self.waiting_for_room[producer] = None

    def stop_waiting_for_room(self, producer: Producer) -> None:
        """Forget that the producer waits for room."""
        waiting_for_room = self.waiting_for_room
        if waiting_for_room is not None:
            waiting_for_room.pop(producer, None)

    def regain_room(self) -> None:
        """Share room that was promised, and perhaps not used, among the waiting producers at the
        end of the pass. A node that uses the room of nodes behind it tells those nodes."""
        if self.waiting_for_room and not self.dirty:
            self.touch()

    # -- consumers -----------------------------------------------------------------------

    def subscribe(self, consumer: Consumer) -> None:
        """Add a consumer, which gets messages after its first `wake`."""

    def unsubscribe(self, consumer: Consumer) -> None:
        """Remove a consumer that leaves; its messages have been given back before."""

    def wake(self, consumer: Consumer) -> None:
        """Offer messages to the consumer, which may be able to take some again."""

    def count_available(self, consumer: Consumer) -> i64:
        """Return how many messages wait for credit of the consumer: at least the true number, and 0
        only if there are none.

        Messages are not looked at one by one.
        """
        return 0

    def want_drained(self, consumer: Consumer) -> None:
        """Tell the consumer, once, when there is nothing left for it."""

    def dispatch(self) -> None:
        """Offer messages to consumers until there are no more messages or no ready consumers, and
        room to producers."""
        if self.waiting_for_room:
            self.grant_room()

    def bookmark(self, consumer: Consumer) -> list[int] | None:
        """Return the position of a consumer that takes nothing out, for `rewind`; None if it is not
        known."""
        return None

    def rewind(self, consumer: Consumer, bookmark: list[int]) -> None:
        """Show the consumer again what it was shown since the bookmark."""

    # -- outcomes of messages that a consumer holds -----------------------------------------

    def remove(self, consumer: Consumer, entry: Entry) -> None:
        """Remove a message that was accepted."""

    def reject(self, consumer: Consumer, entry: Entry, error: Error | None) -> None:
        """Remove a message that the consumer found invalid (AMQP 1.0 §3.4.3)."""

    def give_back(self, consumer: Consumer, entry: Entry, failed: bool, elsewhere: bool) -> None:
        """Return the message to its place (AMQP 1.0 §3.4.4–5)."""

    def hand_over(self, entry: Entry, before: Consumer, after: Consumer) -> None:
        """Pass the message to another consumer: to a stand-in for a link that leaves, or to a link
        that is attached again."""
        before.unhold(entry)
        after.hold(entry)

    def decided(self, consumer: Consumer, entry: Entry) -> None:
        """Note that no transaction decides on the message any more, which the consumer holds."""
        entry.enlisted = False

    def locks_messages(self) -> bool:
        """Return whether messages that are sent unsettled are locked (policies `lock-duration`
        and `sessions`)."""
        return False

    def amend(self, entry: Entry, message: BrokerMessage) -> None:
        """Change a message to which the holding consumer has added annotations (AMQP 1.0
        §3.4.5)."""
        entry.message = message

    def message_of(self, entry: Entry) -> BrokerMessage | None:
        """Return the message of an entry that a consumer holds; None if it cannot be read from
        disk."""
        return entry.message

    def pause_dispatch(self) -> None:
        """Stop dispatching until `resume_dispatch`: messages will return in several passes, and
        newer ones must not overtake them. Calls are counted."""

    def resume_dispatch(self) -> None:
        """Dispatch again: all messages have returned."""

    # -- information -----------------------------------------------------------------------

    def consumer_count(self) -> i64:
        """Return the number of links that take messages out of the node."""
        return 0

    def message_count(self) -> i64:
        """Return the number of messages in the node, including those that consumers hold."""
        return 0

    def describe(self) -> dict[str, object]:
        """Return its settings and figures by their public names, for management and metrics."""
        return {"name": self.address, "type": self.kind}

    def figures(self) -> dict[str, int]:
        """Return the numbers in `describe`, for metrics, which ask every node."""
        found: dict[str, int] = {}
        for name, value in self.describe().items():
            if isinstance(value, int) and not isinstance(value, bool):
                found[name] = value
        return found

    # -- turns and the end -----------------------------------------------------------------

    def delete(self, error: Error) -> None:
        """End every link with `error` and drop all messages, in slices, until `ending` is over."""
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
        """Return the links that consume from the node; they end with it."""
        return []

    def parts(self) -> list[Node]:
        """Return the nodes that are deleted with this one."""
        return []

    def drop_rest(self, slices: Slices) -> bool:
        """Drop the rest of the deleted node, after its links and parts, as far as the slice allows;
        return whether everything is dropped."""
        return True

    def node_gone(self, node: Node) -> None:
        """Act upon the deletion of a node that this one watches (`watchers`)."""

    def party_gone(self, number: i64) -> None:
        """Act upon the end of a session or connection that this node awaits (`Space.awaiting`)."""

    def link_opened(self) -> None:
        """Count a link that has been attached."""
        self.links += 1

    def link_closed(self) -> None:
        """Count a link that is gone; end the node if it was created for that link."""
        self.links -= 1
        if self.lifetime != PERMANENT:
            self.reconsider_life()

    def reconsider_life(self) -> None:
        """Delete the node if its lifetime policy says so now. The end of the creating link is
        reported separately."""
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
        """Delete the node, which was unused for the time of `auto_delete`; a declared node
        stays."""
        if not self.declared:
            self.space.remove(self)

    def touch(self) -> None:
        """Ask for a turn at the end of this pass."""
        if not self.dirty:
            self.dirty = True
            self.agenda.nodes.append(self)


class MessagePager:
    """The part that moves messages of all nodes out of memory: see `nodes/paging/pager.py`."""

    __slots__ = ()


@final
class Agenda:
    """The nodes that dispatch at the end of the current pass, and the time of the pass.

    `now` measures durations: milliseconds of a clock that nobody can set. `wall` is the wall clock,
    in milliseconds since the Unix epoch; `dates` are its timers. When the broker starts the two are
    equal; setting the wall clock changes `wall` alone. A *deadline* above 0 is a moment by `now`; a
    deadline below 0 is a date by the wall clock with its sign changed. So one number is enough for
    both. `held` is the size in bytes of the messages of all nodes, each message counted once;
    `pinned` of these bytes belong to messages that cannot be paged out, because no queue has them.
    `changes` is where nodes write their changes for the disk, `store` is where they read them; None
    without a store. `bodies` has the ids of messages that are stored apart from their entries.
    `pager` moves messages out of memory, None without one; `emptied` counts paged-out messages that
    belong to several entries. `letters` counts dead letters that have left a queue and are not
    published yet. `remembered` has the numbers of consumers that return (`Consumer.known_as`).
    `chunk_budget` bounds the making of chunks, `slices` bounds long work in one pass. `moving` is
    true while a message is moved: if it is refused it stays where it is.
    """

    __slots__ = (
        "nodes",
        "now",
        "wall",
        "dates",
        "held",
        "pinned",
        "changes",
        "store",
        "bodies",
        "pager",
        "emptied",
        "letters",
        "remembered",
        "chunk_budget",
        "slices",
        "moving",
        "_waiting",
    )

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.now: i64 = 0
        self.wall: i64 = 0
        self.dates: TimerHeap = TimerHeap()
        self.held: i64 = 0
        self.pinned: i64 = 0
        self.changes: Changes = Changes()
        self.store: Store | None = None
        self.bodies: dict[BrokerMessage, int] = {}
        self.pager: MessagePager | None = None
        self.emptied: i64 = 0
        self.letters: i64 = 0
        # The map always has `OWNER`.
        self.remembered: set[int] = {0}
        self.chunk_budget: ChunkBudget = ChunkBudget()
        self.slices: Slices = Slices()
        self.moving: bool = False
        self._waiting: _Turns | None = None

    def pin(self, size: i64) -> None:
        """Count bytes of messages that no queue has."""
        self.held += size
        self.pinned += size

    def unpin(self, size: i64) -> None:
        """Count bytes of messages that no queue has, and that are gone."""
        self.held -= size
        self.pinned -= size

    def pageable(self) -> i64:
        """Return how many bytes of messages in memory can be paged out."""
        return self.held - self.pinned

    def date_of(self, deadline: i64) -> i64:
        """Return the date of a deadline by the present wall clock."""
        return deadline - self.now + self.wall if deadline > 0 else -deadline

    def moment_of(self, date: i64) -> i64:
        """Return the moment by `now` of a past date, at least 1.

        A date in the future was taken from a wall clock that was ahead: no time has passed since.
        """
        passed = self.wall - date
        moment = self.now - passed if passed > 0 else self.now
        return moment if moment > 0 else 1

    def left(self, deadline: i64) -> i64:
        """Return the milliseconds until a deadline, which is not 0."""
        return deadline - self.now if deadline > 0 else -deadline - self.wall

    def run(self) -> None:
        """Give every node on the agenda its turn, also the nodes that are added meanwhile.

        Work beyond one pass waits for another pass, where it may wait.
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
                # An error costs only the connection of this pass; the other nodes go on.
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
    """The task for nodes whose turns did not fit into a slice."""

    __slots__ = ("nodes",)

    def __init__(self) -> None:
        super().__init__()
        self.nodes: deque[Node] = deque()

    def go_on(self, slices: Slices) -> bool:
        """Give nodes their turns, as far as the slice allows."""
        nodes = self.nodes
        while nodes:
            if slices.is_spent():
                return False
            slices.spend(TURN)
            node = nodes.popleft()
            node.dirty = False
            node.dispatch()
        return True


def refuse_together(node: Node, messages: list[BrokerMessage]) -> Refusal | None:
    """Return why a node would not take all of these messages together; None if it would.

    The messages are not published, and no room stays reserved.
    """
    reserved: list[tuple[BrokerMessage, list[Node]]] = []
    refusal: Refusal | None = None
    for message in messages:
        holders: list[Node] = []
        refusal = node.reserve(message, holders)
        reserved.append((message, holders))
        if refusal is not None:
            break
    for message, holders in reserved:
        for holder in holders:
            holder.unreserve(message)
    return refusal
