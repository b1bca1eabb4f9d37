"""A client that takes the messages of a queue by leases: it reads each as often as it likes, and
settles it, gives it back, or lets it lapse."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from http import HTTPStatus

import ferrymq
from ferrymq import LinkDetached, ManagementClient, ManagementError
from ferrymq_types.transport import SenderSettleMode
from tests.crash.actors.actor import Actor
from tests.crash.client_side import ClientSide

_LOST = "ferrymq:lease-lost"
# How long a lease holds, in ms: some lapse while the broker is away, some outlive the run.
_DURATIONS = (1000, 1500, 60_000)


@dataclass
class _Lease:
    """A lease that was asked for. `until` is its expiry, in ms since the epoch; 0 before the answer
    to the request."""

    number: int
    name: str
    until: int = 0
    messages: int = 0
    # What was read, and the messages of it that survive the broker; None before the first time.
    read: list[str] | None = None
    lasting: list[str] = field(default_factory=list)
    # The keys of the outcomes in the ledger, once the broker was asked to settle.
    keys: list[int] = field(default_factory=list)
    # Whether such a request had no answer.
    in_doubt: bool = False
    releasing: bool = False


class Leaser(Actor):
    """Has one lease at a time, which it goes on with after each loss of the connection."""

    def __init__(self, stage: ClientSide, name: str, node: str) -> None:
        super().__init__(stage, name)
        self.node = node
        self._leases = 0
        self._lease: _Lease | None = None
        self._finishing = False
        self._finished = asyncio.Event()

    async def finish(self) -> None:
        self._finishing = True
        async with asyncio.timeout(30):
            await self._finished.wait()

    async def work(self, connection: ferrymq.Connection) -> None:
        async with connection.management() as management:
            while not self._finishing or self._lease is not None:
                lease = self._lease
                if lease is None:
                    self._leases += 1
                    lease = self._lease = _Lease(self._leases, f"{self.name}/{self._leases}")
                try:
                    await self._go_on(connection, management, lease)
                except LinkDetached as error:
                    if error.condition != _LOST:
                        raise
                    self._lost(lease)
                except ManagementError as error:
                    if error.status != HTTPStatus.GONE:
                        raise
                    self._lost(lease)
                await asyncio.sleep(self.random.random() / 50)
        self._finished.set()
        # The others may not have finished; another connection would be of no use.
        await asyncio.Event().wait()

    async def _go_on(
        self, connection: ferrymq.Connection, management: ManagementClient, lease: _Lease
    ) -> None:
        """Do the next thing with a lease: first what had no answer."""
        if lease.releasing:
            await self._release(management, lease)
        elif lease.keys:
            await self._settle(management, lease)
        elif not lease.until:
            await self._take(management, lease)
        elif lease.read is None:
            await self._read(connection, lease)
        elif self._finishing:
            await self._release(management, lease)
        else:
            choice = self.random.random()
            if choice < 0.2:
                await self._read(connection, lease)
            elif choice < 0.3:
                await self._renew(management, lease)
            elif choice < 0.8:
                await self._settle(management, lease)
            elif choice < 0.97:
                await self._release(management, lease)
            elif lease.until - _now() < 2000:
                await asyncio.sleep((lease.until - _now()) / 1000 + 0.05)
                await self._read(connection, lease)
                self.ledger.write("overdue", lease=lease.name, node=self.node)

    async def _ask(
        self, management: ManagementClient, operation: str, **arguments: object
    ) -> dict[str, object]:
        body = {"holder": self.name, **arguments}
        return (await management.request(operation, "queue", self.node, body)).map()

    async def _take(self, management: ManagementClient, lease: _Lease) -> None:
        answer = await self._ask(
            management,
            "LEASE",
            number=lease.number,
            messages=self.random.choice((1, 10, 100)),
            duration=self.random.choice(_DURATIONS),
        )
        lease.messages = _number(answer, "messages")
        if lease.messages:
            lease.until = _number(answer, "expiry")
            self.ledger.write("leased", lease=lease.name, node=self.node, until=lease.until)
        elif self._finishing:
            self._lease = None

    async def _renew(self, management: ManagementClient, lease: _Lease) -> None:
        answer = await self._ask(management, "RENEW-LEASES")
        found = answer["leases"]
        assert isinstance(found, list)
        lease.until = _number(found[0], "expiry")
        self.ledger.write("leased", lease=lease.name, node=self.node, until=lease.until)

    async def _read(self, connection: ferrymq.Connection, lease: _Lease) -> None:
        """Read all messages. The order is the same each time; those that are not durable may be
        missing after a restart."""
        receiver = await connection.receiver(
            self.node,
            credit=0,
            # A copy has no outcome.
            snd_settle_mode=SenderSettleMode.SETTLED,
            properties={"ferrymq:lease": {"holder": self.name, "number": lease.number}},
        )
        receiver.add_credit(lease.messages)
        await receiver.drain()
        found: list[str] = []
        lasting: list[str] = []
        while receiver.queued:
            delivery = await receiver.receive()
            id = self.got(delivery, self.node, lease=lease.name)
            if id is not None:
                found.append(id)
                if delivery.message.durable:
                    lasting.append(id)
        await receiver.close()
        if lease.read is None:
            lease.read, lease.lasting = found, lasting
        elif lasting != lease.lasting:
            self.stage.wrong(f"{lease.name} had {lease.lasting}, and later {lasting}")

    async def _settle(self, management: ManagementClient, lease: _Lease) -> None:
        assert lease.read is not None
        first = not lease.keys
        if first:
            lease.keys = [self._intend(lease, id) for id in lease.read]
        # Until there is an answer.
        doubted, lease.in_doubt = lease.in_doubt, True
        answer = await self._ask(management, "SETTLE-LEASES", until=lease.number)
        outcomes = list(zip(lease.read, lease.keys, strict=True))
        if answer["numbers"] == [lease.number]:
            count = _number(answer, "messages")
            if not len(lease.lasting) <= count <= len(lease.read):
                self.stage.wrong(f"{lease.name}: {count} messages settled, of {len(lease.read)}")
            for id, key in outcomes:
                self.ledger.write("confirmed", id=id, node=self.node, key=key)
            self._lease = None
            return
        if not doubted:
            for id, key in outcomes:
                self.ledger.write("unsaid", id=id, node=self.node, key=key)
            self._lost(lease)
        self._lease = None

    def _intend(self, lease: _Lease, id: str) -> int:
        key = len(self.ledger.entries)
        about = {"id": id, "node": self.node, "outcome": "accepted", "key": key}
        self.ledger.write("gives", **about, lease=lease.name)
        return key

    async def _release(self, management: ManagementClient, lease: _Lease) -> None:
        if not lease.releasing:
            lease.releasing = True
            self.ledger.write("ends", lease=lease.name, node=self.node)
        await self._ask(management, "RELEASE-LEASES")
        self._lease = None

    def _lost(self, lease: _Lease) -> None:
        """The broker has no such lease any more."""
        # A lease whose messages are gone with the broker is gone too.
        lapsed = bool(lease.lasting)
        self.ledger.write("ends", lease=lease.name, node=self.node, lapsed=lapsed)
        self._lease = None


def _now() -> int:
    return time.time_ns() // 1_000_000


def _number(answer: dict[str, object], key: str) -> int:
    value = answer[key]
    assert isinstance(value, int)
    return int(value)
