"""A seed's world: clients with work to do, and what goes wrong meanwhile.

What has to be true in the end, whatever happened:

- what producers sent over links that deliver exactly once was received once, in the order of each;
- what ordinary producers were told is accepted was received, and nothing that was never sent;
- what a transaction took from one queue it has put into two others, once each, in both or neither;
- what was accepted, and confirmed by the broker, did not come again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from typing import Any

import ferrymq
from ferrymq import Message, ReconnectPolicy
from ferrymq.errors import AmqpError
from ferrymq_broker.values.policy import NodePolicy, QueuePolicy
from tests.simulation.broker import SimulatedClock, SimulatedServer
from tests.simulation.disk import Interrupted, SimulatedDisk
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import SimulatedNetwork
from tests.support.memory_records import MemoryDisk

NODES: dict[str, NodePolicy] = {
    name: QueuePolicy() for name in ("once", "often", "in", "left", "right")
}
BALLAST = "ballast"
# What comes later, where somebody sets the wall clock.
LATER = "later"
DELAY = "x-opt-delivery-delay"
# By how many seconds the wall clock is set: by little, by much, by years.
STEPS = (0.01, 1.5, 51.0, 7200.0, 4e8)
# A disk that becomes full: some more than what the journal keeps in reserve.
SMALL_DISK = 1 << 20
# What each message has that is sent to fill it.
BALLAST_BYTES = 6000
# How long clients may take in the end, when nothing goes wrong any more, in simulated seconds.
PATIENCE = 600.0


class Wrong(AssertionError):
    """Something that must not happen has happened."""


class World:
    """Everything that one seed decides. `unsafe` is a disk that only says that it syncs; without
    `once` nobody uses links that deliver exactly once. With a `capacity` of the disk, in bytes,
    somebody fills it, and takes everything out again once it is full. With `clocks` somebody sets
    the wall clock and suspends the machine, while messages are delayed."""

    def __init__(
        self,
        seed: int,
        *,
        unsafe: bool = False,
        once: bool = True,
        messages: int = 8,
        capacity: int | None = None,
        clocks: bool = False,
    ) -> None:
        self.seed = seed
        self.clocks = clocks
        self.once = once
        self.rng = random.Random(seed)
        self.messages = messages
        self.loop = SimulatedLoop()
        self.capacity = capacity
        self.nodes = NODES if capacity is None else {**NODES, BALLAST: QueuePolicy()}
        self.clock = SimulatedClock(self.loop)
        # What happens to clocks changes nothing else that the seed decides.
        self.clock_rng = random.Random(f"clocks {seed}")
        # When each delayed message was sent, its delay, and how often the broker had crashed.
        self.delayed: dict[str, tuple[float, float, int]] = {}
        if clocks:
            self.nodes = {**self.nodes, LATER: QueuePolicy()}
        self.disk = SimulatedDisk(self.rng, capacity=capacity or 1 << 40, syncs=not unsafe)
        self.kept = MemoryDisk()
        self.network = SimulatedNetwork(
            self.loop, self.rng, mean_bytes=self.rng.choice((300, 3000))
        )
        self.loop.connect = self.network.connect
        self.server: SimulatedServer | None = None
        self.crashes = 0
        # What was told to be accepted, and what was received, by queue.
        self.accepted: set[str] = set()
        # What was told to be accepted of what fills the disk, and whether it was ever full.
        self.stowed: set[str] = set()
        self.full = asyncio.Event()
        # Whether it was seen that producers had to wait.
        self.stopped = False
        # The mean of seconds before a producer sends a message.
        self.pace = 0.0
        self.pace_rng = random.Random(f"pace {seed}")
        self.faults: list[str] = []
        self.sent: set[str] = set()
        self.received: dict[str, list[str]] = {name: [] for name in (*NODES, BALLAST, LATER)}
        self.confirmed: dict[str, Counter[str]] = {name: Counter() for name in NODES}
        self.again: list[str] = []

    def run(self) -> None:
        """Live it to the end. Raises `Wrong`."""
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._live())
        finally:
            self._end_tasks()
            asyncio.set_event_loop(None)
            self.loop.close()
        self.check()

    def _end_tasks(self) -> None:
        """Clients that still try to get on do so no longer."""
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.wait(tasks, timeout=60))

    # -- the broker ------------------------------------------------------------------------

    def start(self) -> None:
        """Start the broker on what the disk has, perhaps in several attempts."""
        while True:
            if self.crashes and self.rng.random() < 0.3:
                self.disk.steps_left = self.rng.randrange(40)
            try:
                self.server = SimulatedServer(
                    self.loop,
                    self.rng,
                    self.network,
                    self.disk,
                    self.kept,
                    self.nodes,
                    self.clock,
                )
                return
            except Interrupted:
                self.network.stop_broker()
                if self.rng.random() < 0.5:
                    self.disk.lose_power()
                self.disk.kill()
            finally:
                self.disk.steps_left = None

    async def _break(self) -> None:
        for _ in range(self.rng.randrange(1, 5)):
            await asyncio.sleep(self.rng.expovariate(1 / 0.3))
            assert self.server is not None
            self.server.kill(power=self.rng.random() < 0.5)
            self.crashes += 1
            await asyncio.sleep(self.rng.expovariate(1 / 0.1))
            self.start()

    async def _set_clocks(self) -> None:
        rng, clock = self.clock_rng, self.clock
        for _ in range(rng.randrange(2, 7)):
            await asyncio.sleep(rng.expovariate(1 / 0.3))
            seconds = rng.choice(STEPS)
            if rng.random() < 0.3:
                clock.slept += seconds
                clock.stepped += seconds
            else:
                clock.stepped += rng.choice((-seconds, seconds))
            if rng.random() < 0.5:
                # The server looks now and then; a pass may come before it has.
                await asyncio.sleep(rng.random())
            assert self.server is not None
            self.server.follow_clock()

    async def _live(self) -> None:
        self.start()
        done = asyncio.Event()
        work = [self._produce_once(0), self._produce_once(1), self._produce_often(), self._feed()]
        consumers = [
            self._consume_once("once", 0, done),
            self._consume_once("once", 1, done),
            self._consume_often("often", done),
            self._consume_often("left", done),
            self._consume_often("right", done),
            self._move(done),
        ]
        if self.clocks:
            work += [self._produce_delayed(), self._set_clocks()]
            consumers.append(self._consume_often(LATER, done))
        if self.capacity is not None:
            work.append(self._stow())
            consumers.append(self._unload(done))
        watched = [self.loop.create_task(one) for one in consumers]
        try:
            async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
                for task in work:
                    group.create_task(task)
                group.create_task(self._break())
        except BaseException:
            for one in watched:
                one.cancel()
            await asyncio.gather(*watched, return_exceptions=True)
            raise
        self.network.calm = True
        try:
            async with asyncio.timeout(PATIENCE):
                await self._all_there()
                # What comes again comes now.
                await asyncio.sleep(5)
        except TimeoutError:
            pass
        done.set()
        try:
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*watched)
        finally:
            for one in watched:
                one.cancel()
        assert self.server is not None
        if self.server.failure:
            raise Wrong(self.server.failure)

    async def _all_there(self) -> None:
        # Simulated time costs nothing.
        pause = 0.5
        while not self._is_all_there():
            await asyncio.sleep(pause)
            pause *= 1.1

    def _is_all_there(self) -> bool:
        wanted = self.messages
        return (
            len(self.received["once"]) >= (2 * wanted if self.once else 0)
            and self.accepted <= set(self.received["often"])
            and self.delayed.keys() <= set(self.received[LATER])
            and self.stowed <= set(self.received[BALLAST])
            and all(len(set(self.received[name])) >= wanted for name in ("left", "right"))
        )

    # -- clients ---------------------------------------------------------------------------

    def connect(self, name: str) -> Any:
        """A connection that is made again whenever it is lost."""
        # What is sent again is later than the time that is written down for it.
        resend = name != "later"
        policy = ReconnectPolicy(initial=0.05, maximum=0.5, resend=resend, random=self.rng.random)
        return ferrymq.connect(
            "amqp://broker", container_id=name, reconnect=policy, timeout=30.0, idle_time_out=None
        )

    async def _connected(self, name: str) -> Any:
        while True:
            try:
                return await self.connect(name)
            except (AmqpError, OSError, TimeoutError):
                await asyncio.sleep(0.1)

    async def _rest(self) -> None:
        if self.pace:
            await asyncio.sleep(self.pace_rng.expovariate(1 / self.pace))

    async def _produce_once(self, number: int) -> None:
        if not self.once:
            return
        connection = await self._connected(f"producer-{number}")
        sender = await self._link(lambda: connection.sender("once", name="out", exactly_once=True))
        window = asyncio.Semaphore(3)

        async def send(body: str) -> None:
            async with window:
                await self._rest()
                await sender.send(Message(body, durable=True))

        async with asyncio.TaskGroup() as group:
            for n in range(self.messages):
                group.create_task(send(f"{number}-{n}"))
        await connection.close()

    async def _produce_often(self) -> None:
        connection = await self._connected("often")
        sender = await self._link(lambda: connection.sender("often", name="out"))
        for n in range(self.messages):
            body = f"often-{n}"
            await self._rest()
            self.sent.add(body)
            try:
                await sender.send(Message(body, durable=True))
            except AmqpError:
                continue
            self.accepted.add(body)
        await connection.close()

    async def _produce_delayed(self) -> None:
        connection = await self._connected("later")
        sender = await self._link(lambda: connection.sender(LATER, name="out"))
        rng = self.clock_rng
        for n in range(self.messages):
            body = f"later-{n}"
            delay = rng.choice((0, 10, 300, 2000, 20_000))
            message = Message(body, durable=True, message_annotations={DELAY: delay})
            sent = self.loop.time(), self.crashes
            try:
                await sender.send(message)
            except AmqpError:
                continue
            if sent[1] == self.crashes:
                self.delayed[body] = (sent[0], delay / 1000, sent[1])
        await connection.close()

    async def _stow(self) -> None:
        """Fill the disk; and when it was full, go on until something was accepted again."""
        connection = await self._connected("stower")
        sender = await self._link(lambda: connection.sender(BALLAST, name="out"))
        n = 0
        more = self.messages
        while more:
            body = f"ballast-{n}"
            n += 1
            if self.full.is_set():
                more -= 1
            try:
                await sender.send(Message(body.ljust(BALLAST_BYTES), durable=True))
            except (AmqpError, TimeoutError):
                continue
            self.stowed.add(body)
        await connection.close()

    async def _unload(self, done: asyncio.Event) -> None:
        """Take out what fills the disk, once it is full."""
        while not self._is_full():  # noqa: ASYNC110  (every life of the broker says it anew)
            await asyncio.sleep(0.05)
        # Producers have come to a stop by now, unless there was room meanwhile.
        await asyncio.sleep(3)
        server, before = self.server, len(self.stowed)
        assert server is not None
        alarms = list(server.alarms)
        await asyncio.sleep(3)
        if alarms[-1:] == [True] and alarms == server.alarms and not server.dead:
            self.stopped = True
            if len(self.stowed) > before:
                self.faults.append("producers go on although the disk is full")
        self.full.set()
        await self._consume_often(BALLAST, done)

    def _is_full(self) -> bool:
        return self.server is not None and True in self.server.alarms

    async def _feed(self) -> None:
        connection = await self._connected("feeder")
        sender = await self._link(
            lambda: connection.sender("in", name="out", exactly_once=self.once)
        )
        for n in range(self.messages):
            await self._rest()
            while True:
                try:
                    await sender.send(Message(f"in-{n}", durable=True))
                    break
                except AmqpError:
                    if self.once:
                        raise
        await connection.close()

    async def _link(self, attach: Any) -> Any:
        while True:
            try:
                return await attach()
            except (AmqpError, TimeoutError):
                await asyncio.sleep(0.05)

    async def _consume_once(self, queue: str, number: int, done: asyncio.Event) -> None:
        if not self.once:
            return
        connection = await self._connected(f"consumer-{number}")
        receiver = await self._link(
            lambda: connection.receiver(queue, name="in", exactly_once=True, credit=3)
        )
        while not done.is_set():
            try:
                delivery = await receiver.receive(timeout=1.0)
            except TimeoutError:
                continue
            body = delivery.message.body
            self.received[queue].append(body)
            await asyncio.sleep(self.rng.random() * 0.01)
            await delivery.accept()
        await connection.close()

    async def _consume_often(self, queue: str, done: asyncio.Event) -> None:
        connection = await self._connected(f"consumer-of-{queue}")
        receiver = await self._link(lambda: connection.receiver(queue, name="in", credit=5))
        while not done.is_set():
            try:
                delivery = await receiver.receive(timeout=1.0)
            except TimeoutError:
                continue
            except AmqpError:
                await asyncio.sleep(0.05)
                continue
            body = delivery.message.body.rstrip()
            self.received[queue].append(body)
            if queue == LATER:
                self._check_delay(body)
            try:
                await delivery.accept()
            except AmqpError:
                continue
        await connection.close()

    def _check_delay(self, body: str) -> None:
        """A delay goes by what elapses, as long as the broker runs, and the machine does."""
        sent, delay, crashes = self.delayed.get(body, (0.0, 0.0, -1))
        passed = self.loop.time() - sent
        # A message came at the beginning of its millisecond.
        early = passed + 0.002 < delay
        if crashes == self.crashes and self.clock.slept == 0 and early:
            self.faults.append(f"{body} came after {passed:.3f} s, not {delay} s")

    async def _move(self, done: asyncio.Event) -> None:
        connection = await self._connected("mover")
        receiver = await self._link(lambda: connection.receiver("in", name="in", credit=2))
        left = await self._link(lambda: connection.sender("left", name="left"))
        right = await self._link(lambda: connection.sender("right", name="right"))
        while not done.is_set():
            try:
                delivery = await receiver.receive(timeout=1.0)
            except (AmqpError, TimeoutError):
                await asyncio.sleep(0.02)
                continue
            try:
                async with connection.transaction() as transaction:
                    message = Message(delivery.message.body, durable=True)
                    await left.send(message, transaction=transaction)
                    await delivery.accept(transaction=transaction)
                    await right.send(message, transaction=transaction)
            except (AmqpError, TimeoutError):
                # What a transaction gives back is the receiver's, as long as its link is there: a
                # machine that sleeps outlives transactions, and not always connections.
                with contextlib.suppress(AmqpError):
                    await delivery.release()
                await asyncio.sleep(0.02)
        await connection.close()

    # -- what has to be true -----------------------------------------------------------------

    def check(self) -> None:
        """Raises `Wrong` with everything that is not as it has to be."""
        faults = list(self.faults)
        if self.once:
            wanted = [f"{number}-{n}" for number in range(2) for n in range(self.messages)]
            found = Counter(self.received["once"])
            faults += _differences("exactly once", found, Counter(wanted))
        often = set(self.received["often"])
        lost = self.accepted - often
        if lost:
            faults.append(f"accepted and lost: {sorted(lost)}")
        unfound = self.stowed - set(self.received[BALLAST])
        if unfound:
            faults.append(f"accepted on a small disk and lost: {sorted(unfound)}")
        if self.capacity is not None:
            assert self.server is not None
            if not self.full.is_set():
                faults.append("the disk was never full")
            if self.server.alarms[-1:] == [True]:
                faults.append("the disk is full in the end")
        strange = often - self.sent
        if strange:
            faults.append(f"received, never sent: {sorted(strange)}")
        moved = {f"in-{n}" for n in range(self.messages)}
        for name in ("left", "right"):
            missing = moved - set(self.received[name])
            if missing:
                faults.append(f"half a transaction: {sorted(missing)} not in {name}")
        if faults:
            raise Wrong(f"seed {self.seed}: " + "; ".join(faults))


def _differences(what: str, found: Counter[str], wanted: Counter[str]) -> list[str]:
    faults = []
    for body in sorted(found.keys() | wanted.keys()):
        if found[body] != wanted[body]:
            faults.append(f"{what}: {body} {found[body]} times, not {wanted[body]}")
    return faults
