"""A client whose transactions have fences: each is committed once, and it knows which was."""

from __future__ import annotations

import asyncio

import ferrymq
from ferrymq import (
    AmqpError,
    FencePassed,
    PeerError,
    TransactionError,
    TransactionInDoubt,
    TransactionRolledBack,
)
from ferrymq.fence import Digest, Fence
from tests.crash.actors.actor import Actor
from tests.crash.actors.transactions import post
from tests.crash.client_side import ClientSide
from tests.crash.layout import STREAM


class Fencer(Actor):
    """Posts to two nodes in each transaction, and tries again under the same fence until it knows
    that it is committed."""

    def __init__(self, stage: ClientSide, name: str) -> None:
        super().__init__(stage, name)
        self._sequence = 1
        self._attempts = 0
        # The attempt at this sequence that nobody has answered.
        self._doubtful: str | None = None

    async def work(self, connection: ferrymq.Connection) -> None:
        senders = {node: await connection.sender(node) for node in ("right", STREAM)}
        while True:
            self._attempts += 1
            name = f"{self.name}/{self._attempts}"
            fence = Fence(self.name, "one", self._sequence, target="right")
            txn = await connection.transaction(fence=fence)
            futures = []
            for node, sender in senders.items():
                await sender.ready()
                futures.append(post(self, sender, node, name, txn))
            await asyncio.gather(*futures)
            self.ledger.write("commits", txn=name)
            # Each attempt posts other bodies, which stand for the same work.
            digest = Digest()
            digest.add([f"{self.name}/{self._sequence}".encode()])
            try:
                await txn.commit(digest=digest)
            except FencePassed as passed:
                self._on_passed(name, passed)
            except TransactionInDoubt as doubt:
                self._on_doubt(name)
                _leave(doubt)
            except TransactionRolledBack as refused:
                self.ledger.write("rolled-back", txn=name)
                _leave(refused)
            else:
                self._on_committed(name)
            await asyncio.sleep(self.random.random() / 50)

    def _on_committed(self, name: str) -> None:
        self.ledger.write("committed", txn=name)
        if self._doubtful is not None:
            self.ledger.write("rolled-back", txn=self._doubtful)
        self._next()

    def _on_passed(self, name: str, passed: FencePassed) -> None:
        self.ledger.write("rolled-back", txn=name)
        if self._doubtful is None or passed.sequence != self._sequence:
            self.stage.wrong(f"{name}, sequence {self._sequence}: {passed!r}")
        else:
            self.ledger.write("committed", txn=self._doubtful)
        self._next()

    def _on_doubt(self, name: str) -> None:
        if self._doubtful is not None:
            # Of two in doubt one at most was done; the ledger leaves both in doubt.
            self._sequence += 1
            self._doubtful = None
        else:
            self._doubtful = name

    def _next(self) -> None:
        self._sequence += 1
        self._doubtful = None


def _leave(error: TransactionError) -> None:
    """Go the way of the connection that was lost."""
    if isinstance(error.__cause__, PeerError):
        raise error.__cause__ from None
    raise AmqpError(str(error)) from error
