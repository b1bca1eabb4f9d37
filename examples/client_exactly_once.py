"""Send payments and book them, each exactly once, however often the programs are killed.

make run                                    # in one terminal
python examples/client_exactly_once.py write   # kill it whenever you like, and start it again
python examples/client_exactly_once.py read    # the same

The sender stores each payment in a small database before it sends it; the receiver stores each
outcome together with the work. The broker keeps the other half under container-id and link name.
"""

from __future__ import annotations

import sqlite3
import sys
from uuid import uuid4

from ferrymq import Message, Unsettled, blocking
from ferrymq_types.messaging import Accepted


def open_ledger(path: str) -> sqlite3.Connection:
    """Open the database in which the program stores its state."""
    ledger = sqlite3.connect(path)
    ledger.execute("create table if not exists outbox (tag blob primary key, payload blob)")
    ledger.execute("create table if not exists booked (tag blob primary key)")
    ledger.execute("create table if not exists account (amount int)")
    ledger.execute("create table if not exists links (name text primary key)")
    return ledger


def is_known(ledger: sqlite3.Connection, link: str) -> bool:
    """Return whether the link was opened before, and record that it is opened now."""
    with ledger:
        made = ledger.execute("insert or ignore into links values (?)", (link,)).rowcount
    return made == 0


def write(url: str, path: str, count: int) -> None:
    """Send payments. A payment in the outbox is sent again only if the broker never got it."""
    ledger = open_ledger(path)
    rows = ledger.execute("select tag, payload from outbox").fetchall()
    with blocking.connect(url, container_id="till-7", reconnect=True) as connection:
        sender = connection.sender(
            "payments",
            name="till-7-out",
            exactly_once=True,
            unsettled=[Unsettled(*row) for row in rows] if is_known(ledger, "out") else None,
        )

        def done(tag: bytes) -> None:
            with ledger:
                ledger.execute("delete from outbox where tag = ?", (tag,))
            # From now on, the broker may forget the message too.
            sender.settle(tag)

        for tag, error in sender.resumed().items():
            print("resumed", "accepted" if error is None else error)
            done(tag)
        for number in range(count):
            message, tag = Message({"amount": number}, durable=True), uuid4().bytes
            with ledger:
                ledger.execute("insert into outbox values (?, ?)", (tag, message.encode()))
            sender.send(message, delivery_tag=tag, hold=True)
            done(tag)
        print("sent", count)
        # Closing the link would end the state that the broker keeps for it.
        sender.detach()


def read(url: str, path: str, count: int) -> None:
    """Book payments. A payment that is already in the ledger is only confirmed."""
    ledger = open_ledger(path)
    rows = ledger.execute("select tag from booked").fetchall()
    notes = [Unsettled(tag, state=Accepted()) for (tag,) in rows]
    with blocking.connect(url, container_id="bank", reconnect=True) as connection:
        receiver = connection.receiver(
            "payments",
            name="bank-in",
            exactly_once=True,
            unsettled=notes if is_known(ledger, "in") else None,
        )
        for tag in receiver.resumed():
            with ledger:
                ledger.execute("delete from booked where tag = ?", (tag,))
        for _ in range(count):
            delivery = receiver.receive(timeout=60)
            amount = delivery.message.body["amount"]
            with ledger:
                # One transaction stores the work and its outcome: both or neither.
                ledger.execute("insert into account values (?)", (amount,))
                ledger.execute("insert into booked values (?)", (delivery.tag,))
            # In this mode, `accept` returns when the outcome is final.
            delivery.accept()
            with ledger:
                ledger.execute("delete from booked where tag = ?", (delivery.tag,))
        print("booked", *ledger.execute("select count(*), sum(amount) from account").fetchone())
        receiver.detach()


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    target = rest[0] if rest else "amqp://localhost"
    place = rest[1] if len(rest) > 1 else "payments.db"
    {"write": write, "read": read}[what](target, place, 5)
