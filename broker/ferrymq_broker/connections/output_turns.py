"""Turns at the output: how much large output is encoded in one round of the event loop.

A connection has a share of each pass (`OUTPUT_LIMIT`). A connection that has used its share, or has
to wait for its client to read, waits here for its next turn. A few connections have a turn in each
round of the event loop. So thousands of connections that all get the same large message do not
block others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

if TYPE_CHECKING:
    from ferrymq_broker.connections.output import ClientOutput

# The bytes that one connection may write in one pass: a reader with unlimited credit and a long
# queue must not block others.
OUTPUT_LIMIT: Final = 262_144
# Messages with more bytes are sent in turns, however many connections there are.
LARGE: Final = 16_384
# How many connections have a share of output in one round of the event loop.
_AT_ONCE: Final = 4


@final
class OutputTurns:
    """The connections of one broker that have more to write than one share.

    `spent` is whether no other connection may begin with a large message in this round of the event
    loop. `schedule` arranges a call of its argument, `take_turns`, in the next round, which must
    call `begin_round`.
    """

    __slots__ = ("spent", "_taken", "_waiting", "_armed", "_schedule", "_take_turns")

    def __init__(
        self,
        schedule: Callable[[Callable[[], None]], object],
        take_turns: Callable[[], None],
    ) -> None:
        self.spent: bool = False
        # Shares that were used up in this round.
        self._taken: i64 = 0
        self._waiting: deque[ClientOutput] = deque()
        self._armed = False
        self._schedule = schedule
        self._take_turns = take_turns

    def count(self) -> None:
        """Count a connection that has used its share."""
        self._taken += 1
        if self._taken >= _AT_ONCE:
            self.spent = True
        self._arm()

    def wait(self, output: ClientOutput) -> None:
        """Give the connection a turn after those that wait already."""
        if not output.waits_turn:
            output.waits_turn = True
            self._waiting.append(output)
            self._arm()

    def begin_round(self) -> None:
        """Begin a round of the event loop: the first waiting connections continue."""
        self._armed = False
        self._taken = 0
        self.spent = False
        waiting = self._waiting
        turns: i64 = _AT_ONCE
        if len(waiting) > turns:
            self._arm()
        while waiting and turns > 0:
            turns -= 1
            output = waiting.popleft()
            output.waits_turn = False
            output.resume_sending()

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self._schedule(self._take_turns)


@final
class OutputGate:
    """The gate that all output of a replicated broker passes.

    `may_write` returns whether this moment is before the end of the lease. After it nothing is
    written, because another broker may serve already. `waiting` are the connections that have
    something to write.
    """

    __slots__ = ("may_write", "waiting")

    def __init__(self, may_write: Callable[[], bool]) -> None:
        self.may_write: Callable[[], bool] = may_write
        self.waiting: dict[ClientOutput, None] = {}

    def lets_pass(self, output: ClientOutput) -> bool:
        """Return whether a connection may write now; if not, it waits until the gate is open."""
        if self.may_write():
            return True
        self.waiting[output] = None
        return False

    def reopen(self) -> None:
        """Open the gate: the connections that wait write at the end of this pass."""
        waiting = self.waiting
        self.waiting = {}
        for output in waiting:
            output.touch()


@final
class BrokerOutput:
    """The output of all connections of one broker.

    `dirty` are the connections to flush at the end of the pass, `held` those whose output waits for
    the store, and `turns` those that have more to write than one share. `gate` is None without
    replication.
    """

    __slots__ = ("dirty", "held", "turns", "gate")

    def __init__(self, turns: OutputTurns) -> None:
        self.dirty: list[ClientOutput] = []
        self.held: list[ClientOutput] = []
        self.turns: OutputTurns = turns
        self.gate: OutputGate | None = None

    def flush(self) -> None:
        """Flush the connections that have something to write."""
        dirty = self.dirty
        self.dirty = []
        flushed: i64 = 0
        try:
            for output in dirty:
                flushed += 1
                output.flush()
        except BaseException:
            # A bug ends one connection; the others are flushed in the next call.
            self.dirty = dirty[flushed:] + self.dirty
            raise

    def release_held(self) -> None:
        """Release output that waited for the store, because a batch is on disk."""
        held = self.held
        self.held = []
        for output in held:
            output.release_held()
