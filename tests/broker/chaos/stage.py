"""What a play happens on: the broker, its clients with their links, and what is written down."""

from __future__ import annotations

from collections import Counter
from random import Random

from ferrymq_broker.management.setup import install
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.slices import LINK, SLICE
from tests.broker.chaos.accounts import Account
from tests.broker.chaos.world import (
    build,
)
from tests.broker.harness import Client, Network, Receiver, Sender, text
from tests.broker.management.asker import Asker
from tests.broker.stores import ManualStore

CLIENTS = 6


class Actor:
    """A client and the links it has."""

    def __init__(self, client: Client, container: str) -> None:
        self.client = client
        self.container = container
        self.senders: list[Sender] = []
        self.receivers: list[Receiver] = []
        # Whether it has stopped reading, now or since the last step.
        self.deaf = False
        self.dynamic: list[str] = []

    @property
    def shut(self) -> bool:
        """Whether its session takes no transfers at present."""
        return self.client.session.incoming.window <= 0

    @property
    def hears(self) -> bool:
        """Whether what the broker has for it comes at once."""
        return not self.client.handler.output.paused and not self.shut

    def set_window(self, frames: int, once: bool) -> None:
        """Announce another incoming-window, 0 to shut it; when so many frames have come, it opens
        again, or is shut if it was opened `once`."""
        session = self.client.session
        session.incoming._max_window = frames
        session._send_flow(False)
        if once:
            session.incoming._max_window = 0
        self.client.net.run()


class Stage:
    """One broker and its clients, in virtual time."""

    def __init__(self, seed: int, steps: int, stored: bool = False, streams: bool = False) -> None:
        self.seed = seed
        # Whether most of what happens happens to streams.
        self.streams = streams
        # Whether the broker has a store, and is stopped and started now and then.
        self.stored = stored
        self.steps = steps
        self.step = 0
        self.random = Random(seed)
        self.log: list[str] = []
        # Messages are in one place at a time: there is nothing that makes several of one.
        self.unique = not streams and self.random.random() < 0.5
        self.net = Network(
            auto_create=False,
            credit=self.random.choice((1, 3, 10, 1000)),
            incoming_window=self.random.choice((2, 2048)),
            store=ManualStore() if stored else None,
            # Whether one link, or a few, or all end in one slice.
            slice_size=self.random.choice((LINK, 4 * LINK, SLICE)),
        )
        install(self.net.space, self.net.broker)
        build(self.net, self.random, self.unique, stored)
        self.keeper = Asker(self.net)
        self.permanent = set(self.net.space.nodes)
        self.accounts: dict[Queue, Account] = {}
        self.actors: list[Actor] = []
        self.number = 0
        # When the time of a message is over, by its number: by the wall clock, and by what elapses.
        # And what was said to be accepted.
        self.deadlines: dict[int, int] = {}
        self.lives: dict[int, int] = {}
        self.accepted: set[int] = set()
        self.happened: Counter[str] = Counter()
        # Senders' links by container and name: what each was last attached as, and its next tag.
        # Tags begin anew when that changes, and go on while it is the same.
        self.identities: dict[tuple[str, str], tuple[object, ...]] = {}
        self.tags: dict[tuple[str, str], int] = {}
        # The times when the step began: what comes in it may have come then.
        self.since = self.net.wall
        self.elapsed = self.net.elapsed
        # Whether somebody sets the wall clock, and the machine is suspended.
        self.stepping = self.random.random() < 0.5

    def say(self, words: str) -> None:
        self.log.append(f"    {words}")

    def account(self, queue: Queue) -> Account:
        account = self.accounts.get(queue)
        if account is None:
            account = Account(queue)
            self.accounts[queue] = account
        return account

    def some_actor(self) -> Actor:
        if not self.actors:
            self.arrive()
        return self.random.choice(self.actors)

    def arrive(self) -> None:
        """Another client comes."""
        if len(self.actors) >= CLIENTS:
            return
        container = self.random.choice(("c0", "c1", "c2", "c3"))
        self.say(container)
        # Large transfers take several frames then, and wait for the window in between.
        narrow = self.streams and self.random.random() < 0.3
        client = self.net.connect(
            container_id=container,
            incoming_window=1 if narrow else 2048,
            max_frame_size=512 if narrow else 65536,
        )
        self.actors.append(Actor(client, container))


def number_of(payload: bytes) -> int:
    """The number of a message."""
    return int(text(payload))
