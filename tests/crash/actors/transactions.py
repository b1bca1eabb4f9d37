"""Clients that do many things at once: post to queues, topics, a stream and an exchange, and retire
what they have received, all or nothing."""

from __future__ import annotations

import asyncio
from typing import Final

import ferrymq
from ferrymq import Delivery, PeerError, Receiver, Sender, TransactionInDoubt, TransactionRolledBack
from ferrymq_types.transport import ReceiverSettleMode
from tests.crash.actors.actor import Actor, look
from tests.crash.client_side import ClientSide
from tests.crash.layout import STREAM, destinations

NODES: Final = ("inbox", "inbox", "left", "right", "both", "news", STREAM)


class Transactor(Actor):
    """Takes from the inbox and posts to other nodes, and to the inbox again; commits, rolls back,
    or goes without a word."""

    def __init__(self, stage: ClientSide, name: str) -> None:
        super().__init__(stage, name)
        self._transactions = 0

    async def work(self, connection: ferrymq.Connection) -> None:
        inbox = await connection.receiver(
            "inbox", credit=20, rcv_settle_mode=ReceiverSettleMode.SECOND
        )
        senders = {node: await connection.sender(node) for node in NODES}
        while True:
            if await self._transact(connection, inbox, senders):
                return
            await asyncio.sleep(self.random.random() / 100)

    async def _transact(
        self, connection: ferrymq.Connection, inbox: Receiver, senders: dict[str, Sender]
    ) -> bool:
        """One transaction; whether to go."""
        self._transactions += 1
        name = f"{self.name}/{self._transactions}"
        txn = await connection.transaction()
        futures = []
        for _ in range(self.random.randint(0, 5)):
            node = self.random.choice(NODES)
            await senders[node].ready()
            futures.append(post(self, senders[node], node, name, txn))
        taken = await self._take(inbox)
        for delivery, id in taken:
            outcome = "rejected" if self.random.random() < 0.2 else "accepted"
            self.ledger.write("gives", id=id, node="inbox", outcome=outcome, txn=name)
            if outcome == "accepted":
                await delivery.accept(transaction=txn)
            else:
                await delivery.reject("ferrymq:unwanted", transaction=txn)
        await asyncio.gather(*futures)
        choice = self.random.random()
        if choice < 0.75:
            await commit(self, txn, name)
        elif choice < 0.95:
            await txn.rollback()
            for delivery, id in taken:
                self.begin(self.give(delivery, id, "inbox", "released"))
        return choice >= 0.95

    async def _take(self, inbox: Receiver) -> list[tuple[Delivery, str]]:
        taken: list[tuple[Delivery, str]] = []
        for _ in range(min(inbox.queued, self.random.randint(0, 5))):
            delivery = await inbox.receive()
            id = self.got(delivery, "inbox")
            if id is not None:
                taken.append((delivery, id))
        return taken


class Acquirer(Actor):
    """Receives in transactions, and posts one message for each it has taken."""

    async def work(self, connection: ferrymq.Connection) -> None:
        receiver = await connection.receiver("left", credit=0)
        sender = await connection.sender("right")
        while True:
            name = f"{self.name}/{len(self.ledger.entries)}"
            txn = await connection.transaction()
            receiver.add_credit(self.random.randint(1, 5), transaction=txn)
            await receiver.drain()
            futures = []
            while receiver.queued:
                delivery = await receiver.receive()
                id = self.got(delivery, "left")
                if id is not None:
                    self.ledger.write("gives", id=id, node="left", outcome="accepted", txn=name)
                    await delivery.accept()
                    await sender.ready()
                    futures.append(post(self, sender, "right", name, txn))
            await asyncio.gather(*futures)
            if self.random.random() < 0.8:
                await commit(self, txn, name)
            else:
                await txn.rollback()
            await asyncio.sleep(self.random.random() / 50)


def post(
    actor: Actor, sender: Sender, node: str, name: str, txn: ferrymq.Transaction
) -> asyncio.Future[None]:
    """Send a message in a transaction."""
    id = actor.new_id()
    actor.ledger.write("sent", id=id, to=destinations(node), txn=name)
    future = sender.send_nowait(actor.stage.message(id, actor.size()), transaction=txn)
    future.add_done_callback(look)
    return future


async def commit(actor: Actor, txn: ferrymq.Transaction, name: str) -> None:
    """Commit it, and tell the ledger what came of that."""
    actor.ledger.write("commits", txn=name)
    try:
        await txn.commit()
    except TransactionInDoubt as doubt:
        assert isinstance(doubt.__cause__, PeerError)
        raise doubt.__cause__ from None
    except TransactionRolledBack as refused:
        actor.ledger.write("rolled-back", txn=name)
        if isinstance(refused.__cause__, PeerError):
            raise refused.__cause__ from None
        actor.stage.wrong(f"{name} was not committed: {refused!r}")
    else:
        actor.ledger.write("committed", txn=name)
