"""What clients do with connections, sessions and links."""

from __future__ import annotations

from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_types.filters import NoLocalFilter, SelectorFilter
from ferrymq_types.messaging import (
    Accepted,
    DeleteOnClose,
    DeleteOnNoLinks,
    DeleteOnNoLinksOrMessages,
    DeleteOnNoMessages,
    Modified,
    Rejected,
    Released,
    Source,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from ferrymq_types.transport import ReceiverSettleMode, SenderSettleMode
from ferrymq_types.unions import Outcome
from tests.broker.chaos.stage import CLIENTS, Actor, Stage
from tests.broker.chaos.world import (
    ALIASES,
    EXCHANGES,
    KEYS,
    QUEUES,
    STREAMS,
    TOPICS,
)

SELECTORS = ("colour = 'red'", "colour <> 'red'", "number > 50", "colour = 'none'")
LIFETIMES = (
    DeleteOnClose(),
    DeleteOnNoLinks(),
    DeleteOnNoMessages(),
    DeleteOnNoLinksOrMessages(),
)


class Clients(Stage):
    """Come and go, attach and detach."""

    def leave(self) -> None:
        """A client closes its connection, or it breaks."""
        actor = self.some_actor()
        self.actors.remove(actor)
        how = self.random.choice(("close", "lose", "lose"))
        self.say(f"{how} {actor.container}")
        if how == "lose" or actor.client.handler.output.paused:
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
        if not actor.client.handler.output.paused:
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
            closed = self.random.random() < 0.6 and not actor.client.handler.output.paused
            self.say(f"{link._link.name} closed={closed}")
            link.close(closed)
            actor.senders = [sender for sender in actor.senders if sender is not link]
            actor.receivers = [receiver for receiver in actor.receivers if receiver is not link]

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
            names = [s.name for s in topic.subscriptions()] if isinstance(topic, Topic) else []
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
        random = self.random
        name = self.link_name()
        earlier = [
            link
            for container, link in self.identities
            if container == actor.container and self.is_free(actor, link, True)
        ]
        if earlier and random.random() < 0.5:
            name = random.choice(earlier)
        if actor.client.handler.output.paused or not self.is_free(actor, name, True):
            return
        address: str | None = self.address(True)
        target = Target(address=address)
        if self.stored and random.random() < 0.3:
            target.durable = TerminusDurability.UNSETTLED_STATE
            target.expiry_policy = TerminusExpiryPolicy.NEVER
        if random.random() < 0.15:
            target = Target(address=None)
        elif random.random() < 0.1:
            target = Target(
                dynamic=True,
                dynamic_node_properties={"lifetime-policy": random.choice(LIFETIMES)},
            )
        self.say(f"{actor.container} {name} -> {target.address} dynamic={target.dynamic}")
        snd = random.choice(list(SenderSettleMode))
        # Mostly of the same mode wherever it is attached.
        even = int(name.removeprefix("link-")) % 2 == 0
        once = snd is not SenderSettleMode.SETTLED and even != (random.random() < 0.1)
        sender = actor.client.sender(
            None,
            target=target,
            name=name,
            snd=snd,
            properties={"delivery-mode": "exactly-once"} if once else None,
            rcv=random.choice(
                (ReceiverSettleMode.FIRST, ReceiverSettleMode.FIRST, ReceiverSettleMode.SECOND)
            ),
            source=Source(outcomes=random.choice((None, None, ["amqp:accepted:list"]))),
        )
        if sender.detached:
            return
        actor.senders.append(sender)
        granted = sender.remote_target
        place = self.net.space.canonical(granted.address) if granted.address else ""
        identity = (place, granted.durable, once)
        if self.identities.get((actor.container, name)) != identity:
            if self.identities.get((actor.container, name)) is not None:
                self.happened["attached elsewhere"] += 1
            self.identities[actor.container, name] = identity
            self.tags[actor.container, name] = 0
        if target.dynamic:
            actor.dynamic.append(sender.remote_target.address or "")

    def attach_receiver(self) -> None:
        """A link that takes messages, or looks at them."""
        actor = self.some_actor()
        name = self.link_name()
        if actor.client.handler.output.paused or not self.is_free(actor, name, False):
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
                        *((TerminusDurability.UNSETTLED_STATE,) * 3 if self.stored else ()),
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
