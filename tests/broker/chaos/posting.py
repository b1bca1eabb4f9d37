"""Transactions of which several are open on one control link, with postings that come to nothing.

Postings are refused, cut off in the middle of a delivery, or whole; discharges come in the same
write. Of some transactions the play knows that they cannot be committed, of some that they have to
be; of all, that either every message of them has been published or none.
"""

from __future__ import annotations

from typing import Any

from ferrymq.engine.delivery import OutgoingDelivery
from ferrymq.engine.session import Session
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_types.messaging import Accepted, AmqpValue, Data, Rejected, Source, Target
from ferrymq_types.transactions import Discharge, TransactionalState
from tests.broker.chaos.consistency import entries_of
from tests.broker.chaos.copying import Copying
from tests.broker.chaos.stage import Actor, number_of
from tests.broker.harness import Sender, encode
from tests.broker.transactions.kit import ROLLBACK, Controller

# Bytes of a message that takes two frames.
TWO_FRAMES = 700
FRAME = 512


class Attempt:
    """A transaction: what was posted in it. `sound` is whether it has to be committed if it is
    asked to, `broken` whether it must not be; if neither, both may be."""

    def __init__(self, id: bytes) -> None:
        self.id = id
        self.fails = False
        self.sound = True
        self.broken = False
        self.posted: list[int] = []
        # Of queues, how many were posted to each.
        self.queues: dict[Queue, int] = {}
        # Sessions with a delivery that is begun, and what is left of it.
        self.begun: dict[Session, list[Any]] = {}
        self.discharge: OutgoingDelivery | None = None

    @property
    def state(self) -> TransactionalState:
        """The state of its postings."""
        return TransactionalState(txn_id=self.id)


class Posting(Copying):
    """Declare, post, discharge; refuse and cut off."""

    def __init__(self, seed: int, steps: int, stored: bool = False, streams: bool = False) -> None:
        super().__init__(seed, steps, stored, streams)
        # The numbers of messages of which nobody may see anything.
        self.undone: set[int] = set()

    def transact(self) -> None:
        """Several transactions on one control link, discharged in one write, or not at all."""
        actor = self.some_actor()
        random = self.random
        if actor.client.handler.output.paused:
            return
        control = Controller(actor.client)
        attempts = [Attempt(control.declare()) for _ in range(random.randint(1, 4))]
        senders = [self.poster(actor) for _ in range(random.randint(1, 3))]
        for _ in range(random.randint(1, 8)):
            self.post_some(actor, random.choice(attempts), random.choice(senders))
        interrupted = random.random() < 0.3
        if interrupted:
            self.interrupt(attempts)
        if random.random() < 0.1 or actor not in self.actors:
            self.happened["transactions lost"] += 1
            if actor in self.actors:
                self.actors.remove(actor)
                actor.client.lose()
            self.undone |= {number for one in attempts for number in one.posted}
            return
        random.shuffle(attempts)
        before = {queue: int(queue.published) for one in attempts for queue in one.queues}
        inside = False
        for one in attempts:
            one.fails = random.random() < 0.25
            if not inside:
                # What comes behind the end of the control link comes to nothing.
                inside = self.end_begun(one)
            one.discharge = control.link.send(
                encode(AmqpValue(value=Discharge(txn_id=one.id, fail=one.fails)))
            )
        self.net.run()
        if inside and interrupted and not control.detached:
            # The link of what had begun has gone, and its transaction is doomed.
            inside = False
        self.hear_outcomes(control, attempts, inside)
        self.check_published(attempts, before)
        for sender in senders:
            if not sender.detached:
                sender.close()
        if not control.detached:
            control.close()

    # -- postings ----------------------------------------------------------------------------

    def poster(self, actor: Actor, session: Session | None = None) -> Sender:
        """A link to a queue, if there is one to one that is full, or to no node in particular."""
        random = self.random
        full = [queue for queue in self.some_queues() if self.is_full(queue)]
        address: str | None = random.choice(full).address if full else self.address(True)
        if not full or random.random() < 0.4:
            address = random.choice((self.address(True), None))
        outcomes = random.choice((None, ["amqp:accepted:list"]))
        self.number += 1
        return actor.client.sender(
            None,
            target=Target(address=address),
            source=Source(outcomes=outcomes),
            name=f"post-{self.number}",
            session=session,
        )

    def some_queues(self) -> list[Queue]:
        """The queues that have addresses."""
        return [node for node in self.net.space.nodes.values() if isinstance(node, Queue)]

    def post_some(self, actor: Actor, attempt: Attempt, sender: Sender) -> None:
        """Post a message, whole or begun, in the next write."""
        if self.random.random() < 0.2:
            self.begin_message(actor, attempt)
            return
        link = sender.link
        if link.session.outgoing.remote_window <= 0:
            # What waits for the window of the broker would not be sent if its link ended meanwhile.
            self.net.run()
        if sender.detached or link.credit <= 0:
            return
        node = self.node_of(sender)
        if node is not None:
            attempt.queues[node] = attempt.queues.get(node, 0) + 1
        if node is None or node.policy.max_length or node.policy.max_bytes:
            attempt.sound = False
        settled = self.random.random() < 0.3
        if node is not None and self.is_full(node):
            attempt.broken = True
            self.happened["refused postings"] += 1
        link.send(self.body(attempt), settled=settled, state=attempt.state)

    @staticmethod
    def is_full(queue: Queue) -> bool:
        """Whether the queue refuses another message."""
        policy = queue.policy
        return policy.overflow == "reject" and 0 < policy.max_length <= queue.available

    def node_of(self, sender: Sender) -> Queue | None:
        """The queue that a link sends to."""
        address = sender.remote_target.address
        node = self.net.space.nodes.get(self.net.space.canonical(address)) if address else None
        return node if isinstance(node, Queue) else None

    def body(self, attempt: Attempt, size: int = 0) -> bytes:
        """A message of the transaction."""
        self.number += 1
        attempt.posted.append(self.number)
        self.say(f"{self.number} in {attempt.id.hex()}")
        payload = encode(Data(value=b"%d" % self.number + b" " * size))
        self.published.add(payload)
        return payload

    def begin_message(self, actor: Actor, attempt: Attempt) -> None:
        """Send the first frame of a message, on a session of its own."""
        session = actor.client.begin()
        sender = self.poster(actor, session)
        if sender.detached or sender.link.credit <= 0:
            session.end()
            return
        engine = actor.client.engine
        size, engine.remote_max_frame_size = engine.remote_max_frame_size, FRAME
        half, window = session.outgoing, session.outgoing.remote_window
        half.remote_window = 1
        sender.link.send(self.body(attempt, TWO_FRAMES), state=attempt.state)
        engine.remote_max_frame_size = size
        half.remote_window = window - 1
        # The rest does not go by itself when the broker opens its window.
        attempt.begun[session] = list(half._backlog)
        half._backlog.clear()
        self.happened["half postings"] += 1
        attempt.sound = False

    def end_begun(self, attempt: Attempt) -> bool:
        """Messages that have begun end somehow before the discharge; whether one does not, and so
        ends the control link."""
        for session, rest in attempt.begun.items():
            how = self.random.choice(("rest", "end", "detach", "close", "close", "nothing"))
            self.say(f"{attempt.id.hex()}: {how}")
            if how == "rest":
                session.outgoing._backlog.extend(rest)
                session.outgoing.go_on()
                continue
            attempt.broken = True
            if how == "end":
                session.end()
            elif how != "nothing":
                for link in list(session.links.values()):
                    link.detach(closed=how == "close")
            elif not attempt.fails:
                return True
        return False

    # -- what becomes of them ----------------------------------------------------------------

    def interrupt(self, attempts: list[Attempt]) -> None:
        """Something happens between the postings and the discharges."""
        meanwhile = self.random.choice(
            (self.pass_time, self.purge, self.update, self.replace, self.alarm, self.net.run)
        )
        self.say(meanwhile.__name__)
        # What was refused has been, whatever makes room now.
        self.net.run()
        meanwhile()
        for one in attempts:
            one.sound = False

    def hear_outcomes(self, control: Controller, attempts: list[Attempt], inside: bool) -> None:
        """Each discharge has been answered, as it has to be."""
        assert control.detached == inside, f"the control link ended with {control.error}"
        for one in attempts:
            assert one.discharge is not None
            outcome = one.discharge.remote_state
            if isinstance(outcome, Accepted) and not one.fails:
                assert not one.broken, f"{one.id.hex()} was committed without a message"
                self.happened["committed"] += 1
                continue
            self.undone |= set(one.posted)
            if one.fails and isinstance(outcome, Accepted):
                self.happened["rolled back"] += 1
            elif isinstance(outcome, Rejected):
                assert not one.fails and not one.sound, f"{one.id.hex()}: {outcome}"
                assert outcome.error is not None and outcome.error.condition == ROLLBACK
                self.happened["commits refused"] += 1
            else:
                assert outcome is None and inside, f"{one.id.hex()}: {outcome}"

    def check_published(self, attempts: list[Attempt], before: dict[Queue, int]) -> None:
        """Check that everything committed was published, and nothing else."""
        for queue, count in before.items():
            committed = sum(
                one.queues.get(queue, 0)
                for one in attempts
                if one.posted and one.posted[0] not in self.undone
            )
            published = queue.published - count
            assert published >= committed, f"{committed} committed, {published} in {queue}"

    def check_undone(self, queue: Queue) -> None:
        """Nothing of what was rolled back is in the queue."""
        if not self.undone or queue.address == self.keeper.reply_to:
            return
        for entry in entries_of(queue):
            number = number_of(entry.message.payload)
            assert number not in self.undone, f"{number} was rolled back, and is in {queue}"
