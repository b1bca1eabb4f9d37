"""What clients do with messages, and what happens meanwhile."""

from __future__ import annotations

from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_types.messaging import (
    Accepted,
    ApplicationProperties,
    Data,
    Header,
    MessageAnnotations,
    Modified,
    Properties,
    Received,
    Rejected,
    Released,
)
from ferrymq_types.transport import Error, SenderSettleMode
from ferrymq_types.unions import DeliveryState, Section
from tests.broker.chaos.clients import Clients
from tests.broker.chaos.stage import Actor, number_of
from tests.broker.chaos.world import (
    KEYS,
)
from tests.broker.harness import Receiver, encode

COLOURS = ("red", "blue")


class Traffic(Clients):
    """Send, settle, give credit, stop reading; time passes, memory runs short."""

    def send(self) -> None:
        """Some messages of any make."""
        senders = [(actor, s) for actor in self.actors for s in actor.senders if s.attached]
        if not senders:
            self.attach_sender()
            return
        actor, sender = self.random.choice(senders)
        link = actor.container, sender.link.name
        node = self.net.space.nodes.get(str(self.identities[link][0]))
        settled = sender.link.always_settled or (
            sender.link.snd_settle_mode == SenderSettleMode.MIXED and self.random.random() < 0.2
        )
        for _ in range(self.random.choice((1, 1, 2, 5, 20))):
            if sender.detached or sender.link.credit <= 0:
                break
            if b"%d" % (self.tags[link] + 1) in (sender.link.own_tags or ()):
                # Another client has attached it elsewhere, which this one has not heard.
                break
            self.number += 1
            sections = self.message(self.number, sender.remote_target.address is None)
            self.say(f"{sender.link.name} {self.number} to {sender.remote_target.address}")
            self.tags[link] += 1
            published = node.published if isinstance(node, Queue) else 0
            tag = b"%d" % self.tags[link]
            sent = sender.link.send(encode(*sections), settled=settled, tag=tag)
            self.net.run()
            self.happened["sent"] += 1
            # Messages may be scheduled for later, or dropped for their message-id.
            special = any(
                isinstance(section, MessageAnnotations)
                or (isinstance(section, Properties) and section.message_id is not None)
                for section in sections
            )
            if (
                isinstance(node, Queue)
                and not special
                and not settled
                and isinstance(sent.remote_state, Accepted)
            ):
                # What is accepted has been published, whatever its tag stood for before.
                assert node.published > published, f"{self.number} is accepted and nowhere"
                self.happened["accepted"] += 1
            if sender.client.handler.output.paused:
                # Who does not hear that the window has moved sends it who knows when.
                self.forget_deadlines()

    def message(self, number: int, anonymous: bool) -> list[Section]:
        random = self.random
        sections: list[Section] = []
        ttl: int | None = None
        if random.random() < 0.5:
            ttl = random.choice((None, None, 0, 1, 700, 5000))
            durable = self.stored and random.random() < 0.8
            priority = random.choice((0, 3, 4, 4, 5, 9, 200))
            sections.append(Header(durable=durable, priority=priority, ttl=ttl))
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
            self.lives[number] = self.net.elapsed + ttl + delay
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
            self.say(f"{receiver.link.name} {number_of(delivery.payload)} {outcome}")
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
            self.drain_link(*self.random.choice(receivers))

    def drain_link(self, actor: Actor, receiver: Receiver) -> None:
        """Drain, and see that it ends, unless a message waits for the window."""
        self.say(f"drain {receiver.link.name}")
        drained = receiver.drained
        receiver.drain()
        if actor.client.handler.output.paused or receiver.detached:
            return
        if actor.shut and receiver.link.drain:
            self.happened["drains behind a shut window"] += 1
            self.check_drain(actor, receiver)
        else:
            assert receiver.drained == drained + 1 and receiver.link.credit == 0

    def check_drain(self, actor: Actor, receiver: Receiver) -> None:
        """A drain is over, unless a message waits for the window of the client."""
        if receiver.link.drain and not actor.client.handler.output.paused:
            assert actor.shut, "the window is open, and a drain does not end"
            assert self.may_have(receiver), "there is nothing, and a drain does not end"

    def may_have(self, receiver: Receiver) -> bool:
        """Whether there may be a message for it at its queue, or where it has come from."""
        address = receiver.remote_source.address
        node = self.net.space.nodes.get(self.net.space.canonical(address or ""))
        return (
            receiver.link.partial is not None or not isinstance(node, Queue) or bool(node.available)
        )

    def set_window(self) -> None:
        """The window of a client becomes narrow, is shut, or opened."""
        actor = self.some_actor()
        if actor.client.handler.output.paused:
            # What is under way to it was sent within the window that it had.
            return
        choice = (1, 1, 2, 2048) if actor.shut else (0, 0, 1, 2, 5)
        frames, once = self.random.choice(choice), self.random.random() < 0.6
        self.say(f"{actor.container} {frames} once={once}")
        if actor.shut and any(r.link.partial is not None for r in actor.receivers):
            # The rest of what had begun comes late.
            actor.deaf = True
        actor.set_window(frames, once)
        receivers = [r for r in actor.receivers if not r.detached]
        if frames < 9 and receivers and self.random.random() < 0.7:
            receiver = self.random.choice(receivers)
            receiver.credit(self.random.choice((1, 5, 50)))
            self.drain_link(actor, receiver)

    def pause(self) -> None:
        """A client stops reading, or reads again."""
        actor = self.some_actor()
        if actor.client.handler.output.paused:
            actor.client.resume()
        else:
            actor.client.pause()
            actor.deaf = True
        self.say(f"{actor.container} {actor.client.handler.output.paused}")

    def pass_time(self) -> None:
        """Time passes."""
        seconds = self.random.choice((0.001, 0.01, 0.5, 0.7, 1.0, 5.0))
        self.say(f"{seconds}")
        self.net.advance(seconds)

    def set_clock(self) -> None:
        """Somebody sets the wall clock, by little or by years."""
        if self.stepping:
            seconds = self.random.choice((0.002, 0.8, 61.0, 3600.0, 3e8)) * self.random.choice(
                (-1, 1)
            )
            self.say(f"{seconds}")
            self.net.set_clock(seconds)
            self.note_time()

    def suspend(self) -> None:
        """The machine is suspended for a while."""
        if self.stepping:
            seconds = self.random.choice((0.5, 0.5, 5.0, 60.0))
            self.say(f"{seconds}")
            # What was to come meanwhile comes when it is over, and lives from then on.
            self.lives = {number: life + int(seconds * 1000) for number, life in self.lives.items()}
            self.net.suspend(seconds)

    def note_time(self) -> None:
        """A step begins now."""
        self.since = self.net.wall
        self.elapsed = self.net.elapsed

    def forget_deadlines(self) -> None:
        """When the message that was sent last comes to its queue is hard to say."""
        self.deadlines.pop(self.number, None)
        self.lives.pop(self.number, None)

    def alarm(self) -> None:
        """Memory runs short, or does not any more."""
        on = not self.net.broker.alarms
        self.say(f"{on}")
        self.net.broker.begin_pass(self.net.now)
        self.net.broker.set_alarm("disk", on and self.random.random() < 0.3)
        self.net.finish()
