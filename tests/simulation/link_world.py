"""A seed's world of links in unusual states, while the broker crashes.

Clients do what ordinary programs seldom do: several transactions at a time over one control link;
messages for a full queue right before the commit; messages of many frames in transactions, of which
a crash takes the rest; drains behind a window that is nearly always shut; a link name with
exactly-once delivery that is attached to one queue after the other.

What has to be true in the end, whatever happened:

- a transaction that was committed is in both of its queues, one that was rolled back in neither,
  one that is in doubt in both or neither; what a queue refused was never committed;
- every drain ends, and what was accepted before is received;
- what was sent exactly once, over a link of the same name, is in its own queue, once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import ferrymq
from ferrymq import Message, ReconnectPolicy
from ferrymq.errors import AmqpError, TransactionInDoubt, TransactionRolledBack
from ferrymq_broker.values.policy import NodePolicy, QueuePolicy
from ferrymq_codec import Symbol
from tests.simulation.world import PATIENCE, World, Wrong

# Takes this many messages, and refuses others until somebody has taken these.
NARROW = "narrow"
ROOM = 3
TURNS = ("even", "odd")
SHUT = "shut"
NODES: dict[str, NodePolicy] = {
    "left": QueuePolicy(),
    NARROW: QueuePolicy(max_length=ROOM, overflow="reject"),
    SHUT: QueuePolicy(),
    **{name: QueuePolicy() for name in TURNS},
}
# Transactions at a time over one control link.
AT_ONCE = 3
# Of a large message, in frames of the smallest size.
LARGE = 4_000


class LinkWorld(World):
    """Everything that one seed decides. `unsafe` is a disk that only says that it syncs."""

    def __init__(self, seed: int, *, unsafe: bool = False, messages: int = 8) -> None:
        super().__init__(seed, unsafe=unsafe, messages=messages)
        self.nodes = NODES
        self.received = {name: [] for name in NODES}
        self.outcomes: dict[str, str] = {}
        # How often each of these happened.
        self.happened: Counter[str] = Counter()
        self.drained = 0
        # What a client was told is in each of `TURNS`, and did not ask about.
        self.trusted: tuple[set[str], set[str]] = (set(), set())

    async def _live(self) -> None:
        self.start()
        done = asyncio.Event()
        consumers = [self._consume_often(name, done) for name in ("left", NARROW, *TURNS)]
        watched = [self.loop.create_task(one) for one in (*consumers, self._drain(done))]
        try:
            async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
                group.create_task(self._transact())
                group.create_task(self._take_turns())
                group.create_task(self._take_turns_unasked())
                group.create_task(self._fill())
                group.create_task(self._break())
            self.network.calm = True
            async with asyncio.timeout(PATIENCE):
                await self._all_there()
                # What must not come has come by now.
                await asyncio.sleep(5)
        except TimeoutError:
            # What is missing is told in the end.
            pass
        finally:
            done.set()
            await asyncio.wait(watched, timeout=PATIENCE)
            for one in watched:
                if not one.done():
                    self.faults.append(f"does not end: {one.get_coro()}")
                one.cancel()
            await asyncio.gather(*watched, return_exceptions=True)
        assert self.server is not None
        if self.server.failure:
            raise Wrong(self.server.failure)

    def _is_all_there(self) -> bool:
        committed = {body for body, outcome in self.outcomes.items() if outcome == "committed"}
        return (
            committed <= set(self.received["left"])
            and committed <= set(self.received[NARROW])
            and self.accepted <= set(self.received[SHUT])
            and all(self._wanted(name) <= set(self.received[name]) for name in TURNS)
        )

    def _wanted(self, turn: str) -> set[str]:
        at = TURNS.index(turn)
        return {f"turn-{n}" for n in range(self.messages) if n % 2 == at} | self.trusted[at]

    # -- clients ---------------------------------------------------------------------------

    def narrow_connection(self, name: str, window: int) -> Any:
        """A connection with the smallest frames and so many of them at a time."""
        policy = ReconnectPolicy(initial=0.05, maximum=0.5, random=self.rng.random)
        return ferrymq.connect(
            "amqp://broker",
            container_id=name,
            reconnect=policy,
            timeout=30.0,
            idle_time_out=None,
            max_frame_size=512,
            incoming_window=window,
        )

    async def _transact(self) -> None:
        connection = await self._connected("transactor")
        left = await self._link(lambda: connection.sender("left", name="left"))
        narrow = await self._link(lambda: connection.sender(NARROW, name="narrow"))

        async def work(number: int) -> None:
            for n in range(self.messages):
                await self._transaction(connection, left, narrow, f"t{number}-{n}")

        async with asyncio.TaskGroup() as group:
            for number in range(AT_ONCE):
                group.create_task(work(number))
        await connection.close()

    async def _transaction(self, connection: Any, left: Any, narrow: Any, body: str) -> None:
        """Post to both queues without waiting for an answer, then commit or roll back."""
        rng = self.rng
        padded = body.ljust(LARGE) if rng.random() < 0.3 else body
        message = Message(padded, durable=True)
        try:
            transaction = await connection.transaction()
        except (AmqpError, TimeoutError):
            await asyncio.sleep(0.02)
            return
        posted: list[asyncio.Future[None]] = []
        try:
            posted = [
                sender.send_nowait(message, transaction=transaction) for sender in (left, narrow)
            ]
            if rng.random() < 0.3:
                # Until it is known that it was refused, or only part of it is there.
                await asyncio.sleep(rng.random() * 0.02)
            if rng.random() < 0.2:
                await transaction.rollback()
                self.outcomes[body] = "rolled back"
            else:
                await transaction.commit()
                self.outcomes[body] = "committed"
        except TransactionRolledBack:
            self.outcomes[body] = "refused"
        except (TransactionInDoubt, AmqpError, TimeoutError):
            self.outcomes[body] = "in doubt"
        finally:
            await asyncio.gather(*posted, return_exceptions=True)
        if self.outcomes[body] == "in doubt":
            await asyncio.sleep(0.02)
        self.happened[self.outcomes[body]] += 1

    async def _take_turns(self) -> None:
        """Send exactly once, over a link of one name, to one queue after the other."""
        connection = await self._connected("turner")
        for n in range(self.messages):
            sender = await self._link(
                lambda n=n: connection.sender(TURNS[n % 2], name="out", exactly_once=True)
            )
            await sender.send(Message(f"turn-{n}", durable=True))
            while True:
                try:
                    # The names of tags begin anew with the next link.
                    await (sender.close() if self.rng.random() < 0.5 else sender.detach())
                    break
                except (AmqpError, TimeoutError):
                    await asyncio.sleep(0.05)
                    if sender.closed:
                        break
        await connection.close()

    async def _take_turns_unasked(self) -> None:
        """Do so without asking what the broker has of the link: tags begin anew each time."""
        connection = await self._connected("trusting")
        asked = {"delivery-mode": Symbol("exactly-once")}
        for n in range(self.messages):
            body = f"trusting-{n}"
            while body not in self.trusted[n % 2]:
                try:
                    sender = await connection.sender(TURNS[n % 2], name="out", properties=asked)
                    try:
                        await sender.send(Message(body, durable=True))
                    finally:
                        await sender.detach()
                    self.trusted[n % 2].add(body)
                except (AmqpError, TimeoutError):
                    # The broker may have it, and takes it again: nobody has asked.
                    await asyncio.sleep(0.05)
        await connection.close()

    async def _fill(self) -> None:
        connection = await self._connected("filler")
        sender = await self._link(lambda: connection.sender(SHUT, name="out"))
        for n in range(self.messages):
            body = f"shut-{n}"
            padded = body.ljust(LARGE) if self.rng.random() < 0.5 else body
            try:
                await sender.send(Message(padded, durable=True))
            except AmqpError:
                continue
            self.accepted.add(body)
            await asyncio.sleep(self.rng.random() * 0.05)
        await connection.close()

    async def _drain(self, done: asyncio.Event) -> None:
        """Take messages of many frames through a narrow window, drain after drain."""
        connection = await self._link(lambda: self.narrow_connection("drainer", 2))
        receiver = await self._link(lambda: connection.receiver(SHUT, name="in", credit=0))
        while not done.is_set():
            try:
                receiver.add_credit(self.rng.randrange(1, 4))
                await receiver.drain()
                self.drained += 1
                while receiver.queued:
                    delivery = await receiver.receive()
                    self.received[SHUT].append(delivery.message.body.rstrip())
                    await delivery.accept()
            except AmqpError:
                pass
            await asyncio.sleep(0.02)
        await connection.close()

    # -- what has to be true -----------------------------------------------------------------

    def check(self) -> None:
        """Raises `Wrong` with everything that is not as it has to be."""
        faults = list(self.faults)
        left, narrow = set(self.received["left"]), set(self.received[NARROW])
        for body, outcome in self.outcomes.items():
            found = (body in left, body in narrow)
            if outcome == "committed" and found != (True, True):
                faults.append(f"{body} was committed, and is in (left, narrow): {found}")
            elif outcome in ("rolled back", "refused") and found != (False, False):
                faults.append(f"{body} was {outcome}, and is in (left, narrow): {found}")
            elif found[0] != found[1]:
                faults.append(f"half of {body}: in (left, narrow): {found}")
        for turn in TURNS:
            wanted = self._wanted(turn)
            # Consumers here are told again what they could not confirm.
            if set(self.received[turn]) != wanted:
                faults.append(
                    f"{turn} has {sorted(set(self.received[turn]) ^ wanted)} too much or not"
                )
        lost = self.accepted - set(self.received[SHUT])
        if lost:
            faults.append(f"accepted and lost: {sorted(lost)}")
        if faults:
            raise Wrong(f"seed {self.seed}: " + "; ".join(faults))
