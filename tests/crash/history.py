"""A ledger put in order: what became of each message at each node, and of each transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.crash.ledger import Entry

REMOVING = ("accepted", "rejected")


class Violation(NamedTuple):
    """A promise that was not kept: which, and what shows it."""

    rule: str
    what: str


@dataclass
class Transaction:
    """The places of what was asked and answered; None if it was not."""

    asked: int | None = None
    committed: int | None = None
    rolled_back: int | None = None

    @property
    def void(self) -> bool:
        """Whether nothing of it may be there."""
        return self.asked is None or self.rolled_back is not None


@dataclass
class Given:
    """An outcome a client gave, and where it was confirmed."""

    place: int
    outcome: str
    txn: str | None
    key: int | None = None
    confirmed: int | None = None


@dataclass
class Copy:
    """A message in one node: where the ledger says it was sent, received, given outcomes."""

    id: str
    node: str
    sent: int
    txn: str | None = None
    due: int | None = None
    volatile: bool = False
    once: bool = False
    sendings: int = 1
    outcome: str | None = None
    got: list[int] = field(default_factory=list)
    given: list[Given] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.id} of {self.node}"

    @property
    def producer(self) -> str:
        """Who has sent it."""
        return self.id.rpartition(".")[0]

    @property
    def number(self) -> int:
        """Its place among what that one has sent."""
        return int(self.id.rpartition(".")[2])


class Record(NamedTuple):
    """A record of a stream as somebody has read it."""

    place: int
    id: str
    time: int
    drained: bool


class History:
    """Everything by message, by transaction and by place in a stream.

    `dead` leads from a queue to where its dead letters go, `streams` are the nodes that are logs.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self.dead: dict[str, str] = {}
        self.streams: set[str] = set()
        # Settings of the run that the checks need.
        self.limits: dict[str, int] = {}
        # Queues that push out what is too much, as dead letters.
        self.overflows: set[str] = set()
        self.sent: dict[str, list[Copy]] = {}
        self.copies: dict[tuple[str, str], Copy] = {}
        self.transactions: dict[str, Transaction] = defaultdict(Transaction)
        self.records: dict[tuple[str, int], dict[int, list[Record]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self.foreign: list[tuple[int, str, str]] = []
        for place, entry in enumerate(entries):
            self._add(place, entry)

    def origin(self, copy: Copy) -> Copy:
        """The copy a dead letter was before; a copy that is none itself."""
        for queue, dead in self.dead.items():
            if dead == copy.node and (found := self.copies.get((copy.id, queue))):
                return found
        return copy

    def dead_letter(self, copy: Copy) -> Copy | None:
        """What came of the copy behind its queue, if anybody has seen it there."""
        dead = self.dead.get(copy.node)
        return None if dead is None else self.copies.get((copy.id, dead))

    def removed(self, given: Given) -> int | None:
        """From which place on the outcome has certainly taken the message out of its node."""
        if given.outcome not in REMOVING:
            return None
        if given.txn is not None:
            return self.transactions[given.txn].committed
        return given.confirmed

    def may_remove(self, given: Given) -> bool:
        """Whether the outcome can have ended the message: a rejected one lives on elsewhere where
        there are dead letters, which its caller has to see to."""
        if given.outcome not in REMOVING:
            return False
        return given.txn is None or not self.transactions[given.txn].void

    def seen(self, copy: Copy) -> bool:
        """Whether anybody has had the message from this node, or from where it went from there."""
        dead = self.dead_letter(copy)
        return bool(copy.got) or bool(dead is not None and dead.got)

    def certain(self, copy: Copy) -> bool:
        """Whether the message must be there: its sender or a receiver knows that it was."""
        if copy.txn is not None:
            return self.transactions[copy.txn].committed is not None or bool(copy.got)
        return copy.outcome == "accepted" or bool(copy.got)

    def denied(self, copy: Copy) -> bool:
        """Whether the message must not be there: it was refused, or its transaction void."""
        if copy.txn is not None and self.transactions[copy.txn].void:
            return True
        return copy.outcome is not None and copy.outcome != "accepted"

    # -- entries -------------------------------------------------------------------------------

    def _add(self, place: int, entry: Entry) -> None:
        about = entry.about
        match entry.what:
            case "opens":
                self.dead = about["dead"]
                self.streams = set(about["streams"])
                self.limits = about.get("limits", {})
                self.overflows = set(about.get("overflows", []))
            case "sent":
                self._on_sent(place, entry)
            case "answered":
                for copy in self.sent.get(about["id"], ()):
                    copy.outcome = about["outcome"]
            case "got":
                self._on_got(place, about["id"], about["node"])
            case "read":
                self._on_read(place, entry)
            case "gives":
                if (given_to := self.copies.get((about["id"], about["node"]))) is not None:
                    given = Given(place, about["outcome"], about.get("txn"), about.get("key"))
                    given_to.given.append(given)
            case "confirmed":
                for given in self._given(about):
                    given.confirmed = place
            case "unsaid":
                for given in self._given(about):
                    self.copies[about["id"], about["node"]].given.remove(given)
            case "commits":
                self.transactions[about["txn"]].asked = place
            case "committed":
                self.transactions[about["txn"]].committed = place
            case "rolled-back":
                self.transactions[about["txn"]].rolled_back = place

    def _given(self, about: dict[str, Any]) -> list[Given]:
        """What a confirmation is for: others may have had the message since."""
        copy = self.copies.get((about["id"], about["node"]))
        return [] if copy is None else [g for g in copy.given if g.key == about.get("key")][-1:]

    def _on_sent(self, place: int, entry: Entry) -> None:
        about = entry.about
        id = about["id"]
        if id in self.sent:
            for copy in self.sent[id]:
                copy.sendings += 1
                # What becomes of this sending is all there is to know of it.
                if copy.outcome != "accepted":
                    copy.outcome = None
            return
        self.sent[id] = []
        for node in about["to"]:
            copy = Copy(id, node, place, about.get("txn"), about.get("due"))
            copy.volatile = bool(about.get("volatile"))
            copy.once = bool(about.get("once"))
            self.sent[id].append(copy)
            self.copies[id, node] = copy

    def _on_got(self, place: int, id: str, node: str) -> None:
        copy = self.copies.get((id, node))
        if copy is None:
            origin = self.origin(Copy(id, node, place))
            if origin.node == node:
                self.foreign.append((place, id, node))
                return
            copy = Copy(id, node, origin.sent, volatile=origin.volatile)
            self.copies[id, node] = copy
        copy.got.append(place)

    def _on_read(self, place: int, entry: Entry) -> None:
        about = entry.about
        record = Record(place, about["id"], about["time"], bool(about.get("drained")))
        self.records[about["node"], about["partition"]][about["offset"]].append(record)
        copy = self.copies.get((about["id"], about["node"]))
        if copy is None:
            self.foreign.append((place, about["id"], about["node"]))
        else:
            copy.got.append(place)
