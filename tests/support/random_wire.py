"""Two engines at work for a million frames, on a wire that cuts bytes and tears.

Two users begin and end sessions, attach, detach, close and resume links in both directions, send
messages in one frame or many, give and take back credit, drain, settle in every mode, answer at
once or late, and lose the connection in the middle of a frame. `random_model` knows what must
arrive; at quiet points both engines are asked for the same things and have to agree.

Everything follows from the seed. To see a play again that failed:

    python -m tests.support.random_wire SEED FRAMES
"""

from __future__ import annotations

import hashlib
import sys
from collections import deque
from collections.abc import Callable
from random import Random

from ferrymq.engine import (
    Anonymous,
    Connection,
    ConnectionSettings,
    ReceiverLink,
    SenderLink,
    Session,
)
from ferrymq.engine.events import Event
from ferrymq.engine.states import SessionState
from tests.support.grammar import check_grammar
from tests.support.random_model import Stream
from tests.support.random_users import MAX_PENDING, Users
from tests.support.wire import Wire

IDLE = 60.0


class Divergence(AssertionError):
    """The engines disagree, or one of them broke a rule. Says how to see it again."""


class CountingWire(Wire):
    """Counts the frames that have arrived whole, and may be told to garble one of them.

    `digest` is of everything that was written on either side, in order.
    """

    def __init__(
        self,
        left: Connection,
        right: Connection,
        on_event: Callable[[Connection, Event], None],
        garble: Callable[[bytes], bytes] | None,
    ) -> None:
        super().__init__(left, right, on_event)
        self.frames = 0
        self.digest = hashlib.sha256()
        self._garble = garble
        self._ends: tuple[deque[int], deque[int]] = (deque(), deque())
        self._taken = [0, 0]
        self._put = [0, 0]

    def collect(self, side: int) -> None:
        """Put what one engine has to say on the wire, and note where frames end."""
        data = self.ends[side].data_to_send()
        if not data:
            return
        if self._garble is not None:
            data = self._garble(data)
        self.digest.update(data)
        self._in_flight[side].extend(data)
        base = self._put[side]
        ends = self._ends[side]
        at = 0
        while at < len(data):
            if data.startswith(b"AMQP", at):
                at += 8
            else:
                at += int.from_bytes(data[at : at + 4], "big")
                ends.append(base + at)
        self._put[side] = base + len(data)

    def deliver(self, side: int, limit: int) -> int:
        """Hand over up to `limit` bytes and count the frames that are whole by them."""
        count = super().deliver(side, limit)
        taken = self._taken[side] = self._taken[side] + count
        ends = self._ends[side]
        while ends and ends[0] <= taken:
            ends.popleft()
            self.frames += 1
        return count


class RandomWire(Users):
    """One play: `play` goes on until `frames` frames have arrived, over many connections."""

    def __init__(
        self, seed: int, frames: int, garble: Callable[[bytes], bytes] | None = None
    ) -> None:
        super().__init__(Random(seed))
        self.seed = seed
        self.target = frames
        self.frames = 0
        self.steps = 0
        self.connections = 0
        self.digest = hashlib.sha256()
        self._garble = garble
        weighted: list[tuple[int, Callable[[], None]]] = [
            (60, self._move),
            (16, self._send),
            (8, self._credit),
            (10, self._settle),
            (6, self._answer_owed),
            (8, self._answer_late),
            (10, self._attach),
            (2, self._state),
            (2, self._drain),
            (2, self._begin),
            (1, self._rare),
        ]
        self._moves = [move for weight, move in weighted for _ in range(weight)]
        self._connect()

    # -- the play ----------------------------------------------------------------------

    def play(self) -> None:
        """Play to the end. Raises `Divergence`."""
        try:
            while self.frames + self.wire.frames < self.target:
                self.steps += 1
                self._random.choice(self._moves)()
                if self.steps % 1000 == 0:
                    self.quiet()
            self._finish()
        except Exception as error:
            frames = self.frames + self.wire.frames
            raise Divergence(
                f"seed {self.seed}, {self.target} frames: diverged after {frames} frames, step "
                f"{self.steps}, connection {self.connections}: {type(error).__name__}: {error}\n"
                f"again: python -m tests.support.random_wire {self.seed} {self.target}"
            ) from error

    def _connect(self) -> None:
        random = self._random
        self.connections += 1
        sasl = random.random() < 0.3
        initiator = random.randrange(2)
        engines = []
        for side in (0, 1):
            first = side == initiator
            engines.append(
                Connection(
                    ConnectionSettings(
                        container_id=f"side-{side}",
                        initiator=first,
                        max_frame_size=random.choice((512, 512, 600, 1024, 65536)),
                        incoming_window=random.choice((1, 2, 5, 20, 2048)),
                        idle_time_out=random.choice((None, IDLE)),
                        sasl=Anonymous() if first and sasl else None,
                        sasl_mechanisms=None if first or not sasl else ["ANONYMOUS"],
                    ),
                    0.0,
                )
            )
        self._closing = self._torn = False
        self.wire = CountingWire(engines[0], engines[1], self._on_event, self._garble)
        engines[initiator].open()
        if not sasl and random.random() < 0.5:
            # Everything in one flight, before the peer has said a word.
            engines[initiator].begin()

    def _disconnected(self) -> None:
        """Both engines are through with the connection."""
        for engine in self.wire.ends:
            assert engine.finished
        for end in self._ends.values():
            assert end.link is None, "a link outlives its connection"
        for late in self._later:
            late.clear()
        if self.connections % 8 == 1:
            # Reading everything a second time takes a while.
            for written in self.wire.written:
                check_grammar(bytes(written))
        self.frames += self.wire.frames
        self.digest.update(self.wire.digest.digest())
        self._connect()

    def _move(self) -> None:
        wire = self.wire
        wire.now += 0.001
        wire.step(self._random)
        if self.steps % 16 == 0:
            for engine in wire.ends:
                due = engine.next_deadline()
                if due is not None and due <= wire.now:
                    self._count("timer")
                    engine.handle_timeout(wire.now)
            if self._random.random() < 0.01:
                # A while in which nothing happens; the wire is empty, so nobody is late.
                wire.drain(self._random)
                wire.now += IDLE / 5

    def _rare(self) -> None:
        what = self._random.random()
        if what < 0.35:
            self._detach(closed=False)
        elif what < 0.55:
            self._detach(closed=True)
        elif what < 0.70:
            self._settle_early()
        elif what < 0.80:
            self._end_session()
        elif what < 0.87:
            self._tear()
        elif what < 0.92:
            self._close()

    def _tear(self) -> None:
        """The connection is lost, with whatever was on its way."""
        self._count("lost")
        wire = self.wire
        self._torn = True
        for side in (0, 1):
            wire.collect(side)
            wire.deliver(side, self._random.choice((0, 0, 100, 5000)))
        for side in (0, 1):
            wire.ends[side].receive_eof(wire.now)
            wire.settle_events(side)
        for stream in self.streams:
            self._change_of_mind(stream.sender)
        self._disconnected()

    def _close(self) -> None:
        if not any(engine.opened for engine in self.wire.ends):
            return
        self._count("closed connection")
        self._closing = True
        for side in self._random.choice(((0,), (1,), (0, 1))):
            self.wire.ends[side].close()
            self.wire.settle_events(side)
        self.wire.drain(self._random)
        self._disconnected()

    # -- what must hold -----------------------------------------------------------------------

    def quiet(self) -> None:
        """Let everything arrive and be answered, then ask both sides for the same things."""
        self._patience = 0.0
        while True:
            self.wire.drain(self._random)
            if self._later[0] or self._later[1]:
                for late in self._later:
                    while late:
                        late.popleft()()
            elif not self._give_credit_back():
                break
        self._patience = 1.0
        left, right = self.wire.ends
        assert left.opened and right.opened
        assert len(left.channels.by_local) == len(right.channels.by_local)
        for session in left.channels.by_local.values():
            other = right.channels.by_local[int(session.remote_channel)]
            assert other.remote_channel == session.channel
            for mine, theirs in ((session, other), (other, session)):
                _compare(mine, theirs)
        for stream in self.streams:
            sender, receiver = stream.sender.link, stream.receiver.link
            assert (sender is None) == (receiver is None), f"{stream} is attached on one side"
            if sender is not None and receiver is not None:
                self._compare_link(stream, sender, receiver)
        self._count("quiet")

    def _give_credit_back(self) -> bool:
        """Let what waits for credit that was taken back go on; whether anything does."""
        found = False
        for stream in self.streams:
            sender, receiver = stream.sender.link, stream.receiver.link
            if sender is not None and receiver is not None and sender.usable and sender.parked:
                assert sender.credit == 0 and sender.overdrawn >= sender.parked, f"{stream} hangs"
                self._count("credit given back")
                receiver.set_credit(MAX_PENDING)
                found = True
        return found

    def _compare_link(self, stream: Stream, sender: SenderLink, receiver: ReceiverLink) -> None:
        assert sender.usable and receiver.usable, f"{stream}: {sender} and {receiver}"
        assert sender.parked == 0 and receiver.partial is None
        assert sender.credit == receiver.credit, stream
        assert sender.delivery_count == receiver.delivery_count, stream
        assert sender.handle == receiver.remote_handle
        assert sender.remote_handle == receiver.handle
        assert sender.snd_settle_mode is receiver.snd_settle_mode is stream.snd
        assert sender.rcv_settle_mode is receiver.rcv_settle_mode is stream.rcv
        end = stream.sender
        if not end.waiting:
            # Nothing is on its way, and the link has not been lost since it was sent.
            for record in end.unconfirmed:
                assert record.received or record.may_lose, f"{record} is lost"
            end.unconfirmed = []
            pending = {d.tag for d in end.pending.values()}
            unsettled = stream.receiver.unsettled.keys()
            assert pending == unsettled, f"{stream}: {pending} and {set(unsettled)}"
            stream.check_complete()

    def _finish(self) -> None:
        """Bring every message to its end."""
        for _ in range(200):
            if not any(engine.opened and engine.channels.by_local for engine in self.wire.ends):
                self.wire.drain(self._random)
                self.wire.ends[0].begin()
            for _ in range(10 * len(self.streams)):
                self._attach()
            self.quiet()
            for stream in self.streams:
                link = stream.receiver.link
                if link is not None:
                    link.set_credit(2 * MAX_PENDING)
            self.quiet()
            for _ in range(200):
                self._settle()
                self._answer_owed()
            self.quiet()
            if not any(s.sender.pending or s.receiver.unsettled for s in self.streams):
                break
            for stream in self.streams:
                sender = stream.sender.link
                if sender is not None and stream.sender.waiting:
                    # One of the maps was incomplete: once more, with what is left.
                    self._count("once more")
                    sender.detach(closed=False)
            self.quiet()
        else:
            raise AssertionError("there are deliveries that never end")
        for stream in self.streams:
            stream.check_complete()
        self._close()


def _compare(session: Session, other: Session) -> None:
    """The sending half of one session against the receiving half of the other."""
    assert session.state is SessionState.MAPPED, session
    assert {(name, not sends) for name, sends in session.links} == set(other.links)
    sent = {id for id, delivery in session.outgoing.unsettled.items() if delivery.link.usable}
    arrived = {id for id, delivery in other.incoming.unsettled.items() if delivery.link.usable}
    # Of a link that is detached, the receiver may never have seen the last ones.
    assert sent == arrived, f"{session}: unsettled {sent} and {arrived}"
    assert session.outgoing.next_id == other.incoming.next_id
    assert session.outgoing.remote_window == other.incoming.window


def main() -> None:
    """Play one seed: SEED FRAMES."""
    wire = RandomWire(int(sys.argv[1]), int(sys.argv[2]))
    wire.play()
    print(f"{wire.frames} frames, {wire.connections} connections, {wire.digest.hexdigest()}")
    for what, count in sorted(wire.seen.items()):
        print(f"{count:8} {what}")


if __name__ == "__main__":
    main()
