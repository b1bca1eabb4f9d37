"""Random clients of a broker with nodes of every kind, and what must be true after every step.

Clients come, go, get lost, steal each other's links, send messages of every make, take them and
settle them in every way or not at all, stop reading and go on; somebody manages the nodes under
their hands, time passes, memory runs short. After every step the whole broker is looked through
(`consistency`), and the figures of every queue have to add up (`accounts`). At the end everybody
leaves, and nothing may be left behind.

Everything follows from the seed. To see a play again that failed:

    python -m tests.broker.chaos SEED STEPS
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from ferrymq_broker.config.nodes import policy_attributes
from ferrymq_broker.management.install import install
from ferrymq_broker.nodes.node import (
    DELETE_ON_CLOSE,
    DELETE_ON_NO_LINKS,
    DELETE_ON_NO_LINKS_OR_MESSAGES,
    DELETE_ON_NO_MESSAGES,
    PERMANENT,
)
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_types.filters import NoLocalFilter, SelectorFilter
from ferrymq_types.messaging import (
    Accepted,
    ApplicationProperties,
    Data,
    DeleteOnClose,
    DeleteOnNoLinks,
    DeleteOnNoLinksOrMessages,
    DeleteOnNoMessages,
    Header,
    MessageAnnotations,
    Modified,
    Properties,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from ferrymq_types.transport import Error, ReceiverSettleMode, SenderSettleMode
from ferrymq_types.unions import DeliveryState, Outcome, Section
from tests.broker.chaos.accounts import Account
from tests.broker.chaos.consistency import all_queues, check, entries_of
from tests.broker.chaos.world import (
    ALIASES,
    EXCHANGES,
    KEYS,
    QUEUES,
    STREAMS,
    TOPICS,
    build,
    random_policy,
)
from tests.broker.harness import Client, Network, Receiver, Sender, message_annotations, text
from tests.broker.management.asker import Asker

SELECTORS = ("colour = 'red'", "colour <> 'red'", "number > 50", "colour = 'none'")
COLOURS = ("red", "blue")
LIFETIMES = (
    DeleteOnClose(),
    DeleteOnNoLinks(),
    DeleteOnNoMessages(),
    DeleteOnNoLinksOrMessages(),
)
# What may end a link here; anything else is a mistake of somebody's.
ENDS = {
    "amqp:resource-deleted",
    "amqp:link:stolen",
    "amqp:not-found",
    "amqp:not-allowed",
    "amqp:not-implemented",
    "amqp:resource-locked",
    "amqp:resource-limit-exceeded",
    "amqp:precondition-failed",
    "amqp:link:message-size-exceeded",
    "ferrymq:stream-trimmed",
}
CLIENTS = 6


class Failure(AssertionError):
    """Something is not as it has to be. Says how to see it again."""


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


class Play:
    """One broker and its clients, in virtual time."""

    def __init__(self, seed: int, steps: int) -> None:
        self.seed = seed
        self.steps = steps
        self.step = 0
        self.random = Random(seed)
        self.log: list[str] = []
        # Messages are in one place at a time: there is nothing that makes several of one.
        self.unique = self.random.random() < 0.5
        self.net = Network(
            auto_create=False,
            credit=self.random.choice((1, 3, 10, 1000)),
            incoming_window=self.random.choice((2, 2048)),
        )
        install(self.net.space, self.net.broker)
        build(self.net, self.random, self.unique)
        self.keeper = Asker(self.net)
        self.permanent = set(self.net.space.nodes)
        self.accounts: dict[Queue, Account] = {}
        self.actors: list[Actor] = []
        self.number = 0
        # When the time of a message is over, by its number; and what was said to be accepted.
        self.deadlines: dict[int, int] = {}
        self.accepted: set[int] = set()
        self.happened: Counter[str] = Counter()
        # The time of the day when the step began: what comes in it may have come then.
        self.since = self.net.wall
        self.actions: list[tuple[int, Callable[[], None]]] = [
            (4, self.arrive),
            (6, self.attach_sender),
            (12, self.attach_receiver),
            (20, self.send),
            (25, self.settle),
            (15, self.allow),
            (4, self.drain),
            (4, self.pause),
            (10, self.pass_time),
            (2, self.detach),
            (2, self.leave),
            (1, self.steal),
            (1, self.end_session),
            (2, self.alarm),
            (2, self.purge),
            (2, self.move),
            (2, self.update),
            (1, self.replace),
            (1, self.cancel),
            (1, self.alias),
            (1, self.bind),
        ]

    # -- the play ----------------------------------------------------------------------------

    def run(self) -> Counter[str]:
        """Play; how often everything happened. Raises `Failure`."""
        weights = [weight for weight, _ in self.actions]
        doings = [action for _, action in self.actions]
        try:
            self.arrive()
            while self.step < self.steps:
                self.step += 1
                self.since = self.net.wall
                (action,) = self.random.choices(doings, weights)
                self.log.append(f"{self.step}: {action.__name__}")
                action()
                self.look()
            self.log.append("the end")
            self.finish()
        except Exception as error:
            story = "\n".join(self.log[-25:])
            raise Failure(
                f"python -m tests.broker.chaos {self.seed} {self.steps}: step {self.step}: "
                f"{type(error).__name__}: {error}\n{story}"
            ) from error
        return self.happened

    def say(self, words: str) -> None:
        self.log.append(f"    {words}")

    def look(self) -> None:
        """Collect what came of the step, and check everything."""
        self.net.run()
        for actor in self.actors:
            self.hear(actor)
        check(self.net.broker)
        for queue in all_queues(self.net.broker):
            self.account(queue).balance()
        if self.unique:
            self.check_places()

    def account(self, queue: Queue) -> Account:
        account = self.accounts.get(queue)
        if account is None:
            account = Account(queue)
            self.accounts[queue] = account
        return account

    def check_places(self) -> None:
        """No message is in two places."""
        places: dict[int, list[str]] = {}
        for queue in all_queues(self.net.broker):
            if queue.address == self.keeper.reply_to:
                continue
            for entry in entries_of(queue):
                places.setdefault(_number(entry.message.payload), []).append(
                    f"{queue!r} {entry.state}"
                )
            for scheduled in queue.lifecycle.list_scheduled():
                places.setdefault(_number(scheduled.message.payload), []).append(f"{queue!r} later")
        several = {number: where for number, where in places.items() if len(where) > 1}
        assert not several, f"messages are in several places: {several}"

    # -- what clients hear -------------------------------------------------------------------

    def hear(self, actor: Actor) -> None:
        client = actor.client
        assert client.terminated is None, f"a client was cut off: {client.terminated}"
        assert client.closed_with is None, f"a connection was closed: {client.closed_with}"
        for link in [*actor.senders, *actor.receivers]:
            if link.detached:
                error = link.error
                assert error is None or error.condition in ENDS, f"a link ended with {error}"
                self.happened[f"link: {None if error is None else error.condition}"] += 1
        actor.senders = [sender for sender in actor.senders if not sender.detached]
        actor.receivers = [receiver for receiver in actor.receivers if not receiver.detached]
        for receiver in actor.receivers:
            for delivery in receiver.deliveries:
                if delivery.context is None:
                    delivery.context = True
                    self.receive(actor, delivery.payload)
        actor.deaf = client.handler.paused

    def receive(self, actor: Actor, payload: bytes) -> None:
        self.happened["received"] += 1
        annotations = message_annotations(payload)
        number = _number(payload)
        deadline = self.deadlines.get(number)
        if deadline is not None and not actor.deaf:
            dead = "x-opt-deadletter-reason" in annotations
            stream = "x-opt-offset" in annotations
            assert dead or stream or self.since < deadline, f"{number} came too late"

    # -- clients -----------------------------------------------------------------------------

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
        self.actors.append(Actor(self.net.connect(container_id=container), container))

    def leave(self) -> None:
        """A client closes its connection, or it breaks."""
        actor = self.some_actor()
        self.actors.remove(actor)
        how = self.random.choice(("close", "lose", "lose"))
        self.say(f"{how} {actor.container}")
        if how == "lose" or actor.client.handler.paused:
            actor.client.lose()
        else:
            actor.client.close()
            actor.client.lose()

    def end_session(self) -> None:
        """A session ends with all its links, and another one begins."""
        actor = self.some_actor()
        actor.client.session.end()
        self.net.run()
        actor.senders.clear()
        actor.receivers.clear()
        if not actor.client.handler.paused:
            actor.client.session = actor.client.begin()
        else:
            self.actors.remove(actor)
            actor.client.lose()

    def detach(self) -> None:
        """A link goes."""
        actor = self.some_actor()
        links = [*actor.senders, *actor.receivers]
        if links:
            link = self.random.choice(links)
            # Who has not heard that his link was stolen would close it by attaching it again first
            # (AMQP 1.0 §2.6.6), which is the engine's affair.
            closed = self.random.random() < 0.6 and not actor.client.handler.paused
            self.say(f"{link._link.name} closed={closed}")
            link.close(closed)
            if link in actor.senders:
                actor.senders.remove(link)
            else:
                actor.receivers.remove(link)  # type: ignore[arg-type]

    def address(self, sending: bool) -> str:
        """An address that may or may not exist."""
        choice = self.random.random()
        if choice < 0.02:
            return "nowhere"
        dynamic = [name for actor in self.actors for name in actor.dynamic]
        if choice < 0.08 and dynamic:
            return self.random.choice(dynamic)
        if choice < 0.12:
            return self.random.choice(ALIASES)
        if self.unique or choice < 0.6:
            return self.random.choice(QUEUES)
        if sending:
            name = self.random.choice((*TOPICS, *STREAMS, *EXCHANGES, *EXCHANGES))
            if name in EXCHANGES and self.random.random() < 0.5:
                return f"{name}::{self.random.choice(KEYS[1:])}"
            return name
        name = self.random.choice((*TOPICS, *TOPICS, *STREAMS))
        if name in TOPICS and self.random.random() < 0.2:
            topic = self.net.space.nodes.get(name)
            names = [s.name for s in topic.subscriptions()] if topic is not None else []  # type: ignore[attr-defined]
            if names:
                return f"{name}::{self.random.choice(names)}"
        if name in STREAMS and self.random.random() < 0.5:
            return f"{name}::0"
        return name

    def link_name(self) -> str:
        # Few enough that clients of one container steal each other's.
        return f"link-{self.random.randrange(30)}"

    def is_free(self, actor: Actor, name: str, sending: bool) -> bool:
        """Whether this client itself has no link of that name in this direction."""
        links = actor.senders if sending else actor.receivers
        return all(link._link.name != name for link in links)

    def attach_sender(self) -> None:
        """A link that brings messages."""
        actor = self.some_actor()
        name = self.link_name()
        if actor.client.handler.paused or not self.is_free(actor, name, True):
            return
        random = self.random
        address: str | None = self.address(True)
        target = Target(address=address)
        if random.random() < 0.15:
            target = Target(address=None)
        elif random.random() < 0.1:
            target = Target(
                dynamic=True,
                dynamic_node_properties={"lifetime-policy": random.choice(LIFETIMES)},
            )
        self.say(f"{actor.container} {name} -> {target.address} dynamic={target.dynamic}")
        sender = actor.client.sender(
            None,
            target=target,
            name=name,
            snd=random.choice(list(SenderSettleMode)),
            rcv=random.choice(
                (ReceiverSettleMode.FIRST, ReceiverSettleMode.FIRST, ReceiverSettleMode.SECOND)
            ),
            source=Source(outcomes=random.choice((None, None, ["amqp:accepted:list"]))),
        )
        if sender.detached:
            return
        actor.senders.append(sender)
        if target.dynamic:
            actor.dynamic.append(sender.remote_target.address or "")

    def attach_receiver(self) -> None:
        """A link that takes messages, or looks at them."""
        actor = self.some_actor()
        name = self.link_name()
        if actor.client.handler.paused or not self.is_free(actor, name, False):
            return
        random = self.random
        filters: dict[str, object] = {}
        if random.random() < 0.3:
            filters["selector"] = SelectorFilter(random.choice(SELECTORS))
        if random.random() < 0.05:
            filters["no-local"] = NoLocalFilter()
        capabilities = []
        if random.random() < 0.2:
            capabilities = random.choice((["shared"], ["shared", "global"], ["exclusive"]))
        default: Outcome | None = random.choice(
            (
                None,
                None,
                None,
                Accepted(),
                Released(),
                Rejected(),
                Modified(delivery_failed=True),
                Modified(undeliverable_here=True),
            )
        )
        if random.random() < 0.08:
            source = Source(
                dynamic=True,
                dynamic_node_properties={"lifetime-policy": random.choice(LIFETIMES)},
                default_outcome=default,
                capabilities=None if self.unique else random.choice((None, ["topic"])),
            )
        else:
            source = Source(
                address=self.address(False),
                distribution_mode=random.choice((None, None, None, "copy", "move")),
                filter=filters or None,
                capabilities=capabilities or None,
                default_outcome=default,
                durable=random.choice(
                    (
                        TerminusDurability.NONE,
                        TerminusDurability.NONE,
                        TerminusDurability.CONFIGURATION,
                    )
                ),
                expiry_policy=random.choice(list(TerminusExpiryPolicy)),
                timeout=random.choice((0, 0, 3)),
            )
        properties: dict[str, object] = {}
        if random.random() < 0.2:
            properties["priority"] = random.choice((-1, 1, 5))
        if random.random() < 0.03:
            properties["exclusive"] = True
        self.say(f"{actor.container} {name} <- {source}")
        receiver = actor.client.receiver(
            None,
            source=source,
            name=name,
            credit=random.choice((0, 1, 3, 10, 100)),
            snd=random.choice(
                (SenderSettleMode.MIXED, SenderSettleMode.UNSETTLED, SenderSettleMode.SETTLED)
            ),
            rcv=random.choice((ReceiverSettleMode.FIRST, ReceiverSettleMode.SECOND)),
            max_message_size=random.choice((0, 0, 0, 0, 120)),
            properties=properties or None,
        )
        if receiver.detached:
            return
        actor.receivers.append(receiver)
        if source.dynamic:
            actor.dynamic.append(receiver.remote_source.address or "")

    def steal(self) -> None:
        """Another client of the same container attaches a link of the same name."""
        victims = [(actor, receiver) for actor in self.actors for receiver in actor.receivers]
        if not victims or len(self.actors) >= CLIENTS + 2:
            return
        victim, receiver = self.random.choice(victims)
        attach = receiver.link.remote_attach
        if attach is None or attach.source is None or attach.source.dynamic:
            return
        thief = Actor(self.net.connect(container_id=victim.container), victim.container)
        self.actors.append(thief)
        self.say(f"{receiver.link.name} of {victim.container}")
        stolen = thief.client.receiver(
            None, source=Source(address=attach.source.address), name=receiver.link.name, credit=5
        )
        if not stolen.detached:
            thief.receivers.append(stolen)

    # -- messages ----------------------------------------------------------------------------

    def send(self) -> None:
        """Some messages of any make."""
        senders = [s for actor in self.actors for s in actor.senders if s.attached]
        if not senders:
            self.attach_sender()
            return
        sender = self.random.choice(senders)
        settled = sender.link.always_settled or (
            sender.link.snd_settle_mode == SenderSettleMode.MIXED and self.random.random() < 0.2
        )
        for _ in range(self.random.choice((1, 1, 2, 5, 20))):
            if sender.detached or sender.link.credit <= 0:
                break
            self.number += 1
            sections = self.message(self.number, sender.remote_target.address is None)
            self.say(f"{sender.link.name} {self.number} to {sender.remote_target.address}")
            sender.send_sections(*sections, settled=settled)
            self.happened["sent"] += 1
            if sender.client.handler.paused:
                # Who does not hear that the window has moved sends it who knows when.
                self.deadlines.pop(self.number, None)

    def message(self, number: int, anonymous: bool) -> list[Section]:
        random = self.random
        sections: list[Section] = []
        ttl: int | None = None
        if random.random() < 0.5:
            ttl = random.choice((None, None, 0, 1, 700, 5000))
            sections.append(Header(priority=random.choice((0, 3, 4, 4, 5, 9, 200)), ttl=ttl))
        annotations: dict[str | int, object] = {}
        delay = 0
        if random.random() < 0.15:
            delay = random.choice((0, 1, 500, 4000))
            annotations["x-opt-delivery-delay"] = delay
        if random.random() < 0.1:
            annotations["x-opt-routing-key"] = random.choice(KEYS)
        if annotations:
            sections.append(MessageAnnotations(value=annotations))
        properties = Properties()
        if anonymous:
            properties.to = self.address(True)
        if random.random() < 0.3:
            properties.group_id = random.choice(("g0", "g1", "g2"))
        if random.random() < 0.2:
            properties.message_id = random.randrange(20)
        if random.random() < 0.2:
            properties.subject = random.choice(KEYS)
        if random.random() < 0.1:
            properties.absolute_expiry_time = self.net.wall + random.choice((-1, 0, 1, 2000))
            self.deadlines[number] = properties.absolute_expiry_time
        sections.append(properties)
        if ttl is not None:
            # From when it is in its queue.
            deadline = self.net.wall + ttl + delay
            self.deadlines[number] = min(self.deadlines.get(number, deadline), deadline)
        sections.append(
            ApplicationProperties(
                value={
                    "colour": random.choice(COLOURS),
                    "number": random.randrange(100),
                    "key": random.choice(("k0", "k1", None)),
                }
            )
        )
        sections.append(Data(value=b"%d" % number + b" " * random.choice((0, 10, 100, 300))))
        return sections

    def settle(self) -> None:
        """Some of the deliveries that a client has."""
        receivers = [r for actor in self.actors for r in actor.receivers if r.deliveries]
        if not receivers:
            return
        random = self.random
        receiver = random.choice(receivers)
        outcomes: tuple[DeliveryState | None, ...] = (
            Accepted(),
            Accepted(),
            Accepted(),
            Released(),
            Rejected(),
            Rejected(error=Error(condition="amqp:decode-error", description="no")),
            Modified(),
            Modified(delivery_failed=True),
            Modified(undeliverable_here=True),
            Modified(delivery_failed=True, undeliverable_here=True),
            Modified(message_annotations={"x-opt-seen": "y" * random.choice((1, 50))}),
            None,
        )
        for _ in range(random.choice((1, 2, 10))):
            if not receiver.deliveries:
                break
            delivery = receiver.deliveries.pop(random.randrange(len(receiver.deliveries)))
            outcome = random.choice(outcomes)
            self.say(f"{receiver.link.name} {_number(delivery.payload)} {outcome}")
            if not delivery.remote_settled and random.random() < 0.1 and outcome is not None:
                # First the one, then the other, then perhaps never settled.
                delivery.update(
                    random.choice((Received(section_number=0, section_offset=0), outcome))
                )
                self.net.run()
                if random.random() < 0.7:
                    receiver.settle(outcome, delivery)
                continue
            receiver.settle(outcome, delivery)

    def allow(self) -> None:
        """A receiver gets another credit, perhaps less than it had."""
        receivers = [r for actor in self.actors for r in actor.receivers]
        if receivers:
            receiver = self.random.choice(receivers)
            credit = self.random.choice((0, 1, 2, 5, 50))
            self.say(f"{receiver.link.name} {credit}")
            receiver.credit(credit)

    def drain(self) -> None:
        """A receiver asks for what there is, and is told when that was it."""
        receivers = [
            (actor, r) for actor in self.actors for r in actor.receivers if r.link.credit > 0
        ]
        if receivers:
            actor, receiver = self.random.choice(receivers)
            self.say(receiver.link.name)
            drained = receiver.drained
            receiver.drain()
            if not actor.client.handler.paused and not receiver.detached:
                assert receiver.drained == drained + 1 and receiver.link.credit == 0

    def pause(self) -> None:
        """A client stops reading, or reads again."""
        actor = self.some_actor()
        if actor.client.handler.paused:
            actor.client.resume()
        else:
            actor.client.pause()
            actor.deaf = True
        self.say(f"{actor.container} {actor.client.handler.paused}")

    def pass_time(self) -> None:
        """Time passes."""
        seconds = self.random.choice((0.001, 0.01, 0.5, 0.7, 1.0, 5.0))
        self.say(f"{seconds}")
        self.net.advance(seconds)

    def alarm(self) -> None:
        """Memory runs short, or does not any more."""
        on = not self.net.broker.alarms
        self.say(f"{on}")
        self.net.broker.begin_pass(self.net.now)
        self.net.broker.set_alarm("disk", on and self.random.random() < 0.3)
        self.net.broker.finish_pass()
        self.net.run()

    # -- management --------------------------------------------------------------------------

    def some_queue(self) -> Queue | None:
        node = self.net.space.nodes.get(self.random.choice(QUEUES))
        return node if isinstance(node, Queue) else None

    def purge(self) -> None:
        """Everything that waits goes."""
        queue = self.some_queue()
        if queue is not None:
            self.say(queue.address)
            account = self.account(queue)
            account.purged += self.count(self.keeper.ask("PURGE", "queue", queue.address).map())

    def move(self) -> None:
        """What waits goes to another queue."""
        queue, other = self.some_queue(), self.some_queue()
        if queue is None or other is None or queue is other:
            return
        count = self.random.choice((1, 3, 1000))
        self.say(f"{count} of {queue.address} to {other.address}")
        answer = self.keeper.ask(
            "MOVE", "queue", queue.address, {"target": other.address, "count": count}
        )
        if answer.status == 200:
            self.account(queue).moved += self.count(answer.map())

    @staticmethod
    def count(body: dict[str, object]) -> int:
        count = body["count"]
        assert isinstance(count, int)
        return count

    def update(self) -> None:
        """A queue gets another policy, wholly or in one setting."""
        queue = self.some_queue()
        if queue is None:
            return
        account = self.account(queue)
        account.balance()
        attributes = policy_attributes(random_policy(self.random))
        if self.random.random() < 0.7:
            key = self.random.choice(list(attributes))
            attributes = {key: attributes[key]}
        self.say(f"{queue.address} {attributes}")
        answer = self.keeper.ask("UPDATE", "queue", queue.address, attributes)
        assert answer.status in (200, 400), answer

    def replace(self) -> None:
        """A node goes, or comes again."""
        names = [*QUEUES] if self.unique else [*QUEUES, *TOPICS, *STREAMS]
        name = self.random.choice(names)
        kind = "queue" if name in QUEUES else "topic" if name in TOPICS else "stream"
        if name in self.net.space.nodes:
            self.say(f"delete {name}")
            assert self.keeper.ask("DELETE", kind, name).status == 204
        else:
            self.say(f"create {name}")
            attributes = policy_attributes(random_policy(self.random)) if kind == "queue" else {}
            answer = self.keeper.ask("CREATE", kind, name, attributes)
            assert answer.status == 201 or (answer.status, name in ALIASES) == (409, True), answer

    def cancel(self) -> None:
        """A scheduled message is not to come."""
        queue = self.some_queue()
        if queue is not None:
            sequences = [self.random.randrange(1, 20) for _ in range(3)]
            self.say(f"{queue.address} {sequences}")
            answer = self.keeper.ask(
                "CANCEL-SCHEDULED", "queue", queue.address, {"sequences": sequences}
            )
            assert answer.status == 200

    def alias(self) -> None:
        """An alias comes, goes, or leads elsewhere."""
        name = self.random.choice(ALIASES)
        body: dict[str, object] = {"address": self.random.choice(QUEUES)}
        operation = self.random.choice(("CREATE", "UPDATE", "DELETE"))
        self.say(f"{operation} {name} {body}")
        answer = self.keeper.ask(operation, "alias", name, None if operation == "DELETE" else body)
        assert answer.status < 500, answer

    def bind(self) -> None:
        """A binding comes or goes."""
        if self.unique:
            return
        body: dict[str, object] = {
            "source": self.random.choice(EXCHANGES),
            "destination": self.random.choice((*QUEUES, *TOPICS, *STREAMS, *EXCHANGES)),
            "key": self.random.choice(KEYS),
        }
        operation = self.random.choice(("CREATE", "DELETE"))
        self.say(f"{operation} {body}")
        answer = self.keeper.ask(operation, "binding", None, body)
        assert answer.status < 500, answer

    # -- the end -----------------------------------------------------------------------------

    def finish(self) -> None:
        """Everybody leaves; then the nodes go. Nothing stays behind."""
        net = self.net
        net.broker.set_alarm("disk", False)
        for actor in self.actors:
            actor.client.lose()
        self.actors.clear()
        net.run()
        self.look()
        keeper = self.keeper.client.handler
        for node in net.space.nodes.values():
            if node.kind == "service" or node.address == self.keeper.reply_to:
                continue
            assert node.links == 0, f"{node!r} has links"
            assert not node.producers and node.promised == 0 and node.pledged() == 0
            assert node.lifetime not in (DELETE_ON_CLOSE, DELETE_ON_NO_LINKS), "it should be gone"
            if node.lifetime in (DELETE_ON_NO_MESSAGES, DELETE_ON_NO_LINKS_OR_MESSAGES):
                assert node.message_count() > 0, "it should be gone"
            else:
                assert node.lifetime == PERMANENT
        for queue in all_queues(net.broker):
            if queue.address != self.keeper.reply_to:
                assert queue.acquired == 0 and not queue.crews
        assert list(net.broker.handlers) == [keeper]
        net.advance(20)
        self.look()
        self.keeper.client.lose()
        for node in list(net.space.nodes.values()):
            net.space.remove(node)
        net.run()
        broker = net.broker
        assert broker.agenda.held == 0, f"{broker.agenda.held} bytes are held by nobody"
        assert not broker.handlers and broker.credit.reserved == 0
        assert not net.space.durables and not net.space.awaiting
        assert len(broker.timers) == 0, "timers of nobody"


def _number(payload: bytes) -> int:
    return int(text(payload))
