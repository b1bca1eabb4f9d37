"""Random clients of a broker with nodes of every kind, and what must be true after every step.

Clients come, go, get lost, steal each other's links, send messages of every make, take them and
settle them in every way or not at all, stop reading and go on, shut their windows and drain; some
post in transactions (`posting`), copy streams in chunks (`copying`) and hold what they have still
to copy (`holding`); somebody manages the nodes under their hands, time passes, memory runs short.
After every step the whole broker is looked through (`consistency`, `reading`), the figures of every
queue have to add up (`accounts`), and every record of a stream is what it always was (`ledger`). At
the end everybody leaves, and nothing may be left behind.

Everything follows from the seed. To see a play again that failed:

    python -m tests.broker.chaos SEED STEPS [SEEDS [stored] [streams]]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ferrymq_broker.nodes.node import (
    DELETE_ON_CLOSE,
    DELETE_ON_NO_LINKS,
    DELETE_ON_NO_LINKS_OR_MESSAGES,
    DELETE_ON_NO_MESSAGES,
    PERMANENT,
)
from ferrymq_broker.store.tables import ALIAS, NAMES
from tests.broker.chaos.consistency import all_queues, check, entries_of
from tests.broker.chaos.mirror import compare
from tests.broker.chaos.posting import Posting
from tests.broker.chaos.reading import check_gathering
from tests.broker.chaos.stage import Actor, number_of
from tests.broker.harness import message_annotations

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
    "amqp:invalid-field",
    "amqp:link:message-size-exceeded",
    "ferrymq:stream-trimmed",
}


class Failure(AssertionError):
    """Something is not as it has to be. Says how to see it again."""


class Play(Posting):
    """One broker and its clients, in virtual time: what they do is drawn by lot."""

    def __init__(self, seed: int, steps: int, stored: bool = False, streams: bool = False) -> None:
        super().__init__(seed, steps, stored, streams)
        self.actions: list[tuple[int, Callable[[], None]]] = [
            (4, self.arrive),
            (6, self.attach_sender),
            (12, self.attach_receiver),
            (20, self.send),
            (25, self.settle),
            (15, self.allow),
            (4, self.drain),
            (4, self.set_window),
            (4, self.transact),
            (4, self.pause),
            (10, self.pass_time),
            (2, self.set_clock),
            (1, self.suspend),
            (4, self.detach),
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
        often = 5 if streams else 1
        self.actions += [
            (2 * often, self.set_out),
            (3 * often, self.go_on),
            (4 * often, self.read_more),
            (1 * often, self.stop),
            (1 * often, self.read_in_transaction),
            (1 * often, self.hold),
            (1 * often, self.move_hold),
            (1 * often, self.release),
            (2, self.purge_stream),
            (2, self.update_stream),
            (often, self.locate),
            (4 if streams else 0, self.flood),
        ]
        if stored:
            self.actions += [(2, self.restart), (often, self.slow_disk)]

    def run(self) -> Counter[str]:
        """Play; how often everything happened. Raises `Failure`."""
        weights = [weight for weight, _ in self.actions]
        doings = [action for _, action in self.actions]
        try:
            self.arrive()
            while self.step < self.steps:
                self.step += 1
                self.note_time()
                (action,) = self.random.choices(doings, weights)
                self.log.append(f"{self.step}: {action.__name__}")
                action()
                self.look()
            self.log.append("the end")
            self.finish()
        except Exception as error:
            story = "\n".join(self.log[-25:])
            words = f"{' stored' if self.stored else ''}{' streams' if self.streams else ''}"
            raise Failure(
                f"python -m tests.broker.chaos {self.seed} {self.steps} 1"
                f"{words}: step {self.step}: "
                f"{type(error).__name__}: {error}\n{story}"
            ) from error
        return self.happened

    def look(self) -> None:
        """Collect what came of the step, and check everything."""
        self.net.run()
        for actor in self.actors:
            self.hear(actor)
        # What is due in this very millisecond, too.
        self.net.broker.handle_timeout(self.net.now)
        self.net.broker.tidy()
        self.net.run()
        self.hear_journeys()
        self.net.run()
        self.look_at_streams()
        self.check_nobody_waits()
        check(self.net.broker)
        for queue in all_queues(self.net.broker):
            self.account(queue).balance()
            self.check_undone(queue)
        if self.unique:
            self.check_places()
        if self.stored:
            compare(self.net)

    def check_places(self) -> None:
        """No message is in two places."""
        places: dict[int, list[str]] = {}
        for queue in all_queues(self.net.broker):
            if queue.address == self.keeper.reply_to:
                continue
            for entry in entries_of(queue):
                places.setdefault(number_of(entry.message.payload), []).append(
                    f"{queue!r} {entry.state}"
                )
            for scheduled in queue.lifecycle.list_scheduled():
                places.setdefault(number_of(scheduled.message.payload), []).append(
                    f"{queue!r} later"
                )
        several = {number: where for number, where in places.items() if len(where) > 1}
        assert not several, f"messages are in several places: {several}"

    # -- what clients hear -------------------------------------------------------------------

    def hear(self, actor: Actor) -> None:
        self.hear_records(actor)
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
            self.check_drain(actor, receiver)
            for delivery in receiver.deliveries:
                if delivery.context is None:
                    delivery.context = True
                    self.receive(actor, delivery.payload)
        actor.deaf = client.handler.output.paused

    def receive(self, actor: Actor, payload: bytes) -> None:
        self.happened["received"] += 1
        annotations = message_annotations(payload)
        number = number_of(payload)
        assert number not in self.undone, f"{number} was rolled back, and received"
        late = "x-opt-deadletter-reason" in annotations or "x-opt-offset" in annotations
        deadline = self.deadlines.get(number)
        if deadline is not None and not actor.deaf:
            assert late or self.since < deadline, f"{number} came too late"
        life = self.lives.get(number)
        if life is not None and not actor.deaf:
            assert late or self.elapsed < life, f"{number} came when it had lived"

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
        net.broker.begin_pass(net.now)
        for terminus in net.broker.shared.termini.of(net.space.name):
            terminus.end()
        net.finish()
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
                assert queue.acquired == 0 and not queue.registry.tiers
        assert list(net.broker.handlers) == [keeper]
        net.advance(20)
        self.look()
        self.keeper.client.lose()
        net.broker.begin_pass(net.now)
        for node in list(net.space.nodes.values()):
            net.space.remove(node)
        net.finish()
        broker = net.broker
        assert broker.agenda.held == 0, f"{broker.agenda.held} bytes are held by nobody"
        check_gathering(broker.agenda.chunk_budget, [])
        if net.store is not None:
            left = Counter(NAMES[key[0]] for key in net.store.records if key[0] != ALIAS)
            assert not left, f"records of nobody: {left}"
        assert not broker.handlers and broker.credit.reserved == 0
        assert not net.space.durables and not net.space.awaiting
        assert len(broker.timers) == len(broker.agenda.dates) == 0, "timers of nobody"
