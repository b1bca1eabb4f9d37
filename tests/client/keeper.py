"""A model of a broker with durable termini, which obeys AMQP 1.0 §2.6.13 and loses connections.

What it has been sent is in `received`, once for every message that came as new. `put` has messages
sent; `ended` are the outcomes they came to. Each connection can be given a number of bytes, in
either direction, after which it is cut.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from ferrymq import ReconnectPolicy
from ferrymq.engine import events
from ferrymq.engine.delivery import IncomingDelivery, OutgoingDelivery
from ferrymq.engine.receiver import ReceiverLink
from ferrymq.engine.resumption import Resolution, is_outcome
from ferrymq.engine.sender import SenderLink
from ferrymq.message import Message
from ferrymq_types.messaging import (
    Accepted,
    Released,
    Source,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from tests.client.peer import Peer, PeerConnection


async def at_once(seconds: float) -> None:
    """Nobody waits before he connects again."""
    await asyncio.sleep(0)


POLICY = ReconnectPolicy(initial=0.0, maximum=0.0, sleep=at_once)


@dataclass
class Kept:
    """A terminus and what it has unsettled."""

    incoming: dict[bytes, IncomingDelivery] = field(default_factory=dict)
    outgoing: dict[bytes, OutgoingDelivery] = field(default_factory=dict)
    payloads: dict[bytes, bytes] = field(default_factory=dict)
    # Messages whose turn comes when the maps are whole.
    again: deque[tuple[bytes, bytes]] = field(default_factory=deque)
    number: int = 0


@dataclass
class Cut:
    """How many bytes pass before the connection is lost; None: any number."""

    incoming: int | None = None
    outgoing: int | None = None


class CutConnection(PeerConnection):
    """A connection that is lost after so many bytes."""

    peer: Keeper

    def __init__(self, peer: Keeper, cut: Cut) -> None:
        super().__init__(peer)
        self.cut = cut
        self.over = False

    def data_received(self, data: bytes) -> None:
        if self.over:
            return
        left = self.cut.incoming
        if left is not None:
            self.cut.incoming = max(0, left - len(data))
            if len(data) >= left:
                self.engine.receive_data(data[:left], self.loop.time())
                self.process()
                self.lose()
                return
        super().data_received(data)

    def process(self) -> None:
        while taken := self.engine.take_events():
            for event in taken:
                self.peer.handle(self, event)
        if self.over:
            return
        if data := self.engine.data_to_send():
            left = self.cut.outgoing
            if left is not None:
                self.cut.outgoing = max(0, left - len(data))
                if len(data) >= left:
                    self.transport.write(data[:left])
                    self.lose()
                    return
            self.transport.write(data)
        if self.engine.finished:
            self.transport.close()

    def lose(self) -> None:
        """What has been written arrives, and then nothing more."""
        if not self.over:
            self.over = True
            self.engine.receive_eof(self.loop.time())
            while taken := self.engine.take_events():
                for event in taken:
                    self.peer.handle(self, event)
            self.transport.close()

    def eof_received(self) -> None:
        if not self.over:
            super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lose()
        self.lost.set_result(None)


class Keeper(Peer):
    """The broker. `forget` makes it lose its termini, as if they had expired."""

    def __init__(self, cuts: list[Cut] | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.cuts = deque(cuts or [])
        self.kept: dict[tuple[str, bool], Kept] = {}
        self.tags: list[bytes] = []
        self.ended: dict[bytes, list[object]] = {}
        self.resolutions: list[Resolution] = []
        # What becomes of messages that arrive; None leaves them without an outcome.
        self.outcome: Any = Accepted()
        # What the client should not have done.
        self.broken: list[str] = []
        # Whether parts of messages survive.
        self.keeps_parts = True

    def make_connection(self) -> CutConnection:
        return CutConnection(self, self.cuts.popleft() if self.cuts else Cut())

    async def __aexit__(self, *details: object) -> None:
        await super().__aexit__(*details)
        assert not self.broken

    def lose(self) -> None:
        """Lose the latest connection."""
        connection = self.connection
        assert isinstance(connection, CutConnection)
        connection.lose()

    def terminus(self, link: SenderLink | ReceiverLink) -> Kept:
        return self.kept.setdefault((link.name, link.is_sender), Kept())

    def attach(
        self, connection: PeerConnection, event: events.AttachReceived, **named: Any
    ) -> None:
        link = event.link
        assert isinstance(link, SenderLink | ReceiverLink)
        remote = link.remote_attach
        assert remote is not None
        ours = remote.target if isinstance(link, ReceiverLink) else remote.source
        assert isinstance(ours, Source | Target)
        if ours.durable is not TerminusDurability.UNSETTLED_STATE:
            super().attach(connection, event, **named)
            return
        connection.links[link.name] = link
        key = (link.name, link.is_sender)
        known = key in self.kept
        if remote.unsettled is None:
            self.kept[key] = Kept()
        elif known:
            kept = self.kept[key]
            if isinstance(link, SenderLink):
                link.resume_from(kept.outgoing)
                kept.outgoing = {}
            else:
                link.resume_from(kept.incoming)
                kept.incoming = {}
        else:
            self.kept[key] = Kept()
        assert ours.expiry_policy is TerminusExpiryPolicy.NEVER
        link.accept()
        if isinstance(link, ReceiverLink) and self.credit:
            link.set_credit(self.credit)

    def default(self, connection: PeerConnection, event: events.Event) -> None:
        match event:
            case events.DeliveryReceived() if self.is_durable(event.link):
                if not event.delivery.resumed and not is_whole(event.link):
                    self.broken.append(f"{event.delivery.tag!r} is new, and the maps are not whole")
                self.received[event.link.name].append(Message.decode(event.delivery.payload))
                self.tags.append(event.delivery.tag)
                if self.outcome is not None:
                    event.delivery.settle(self.outcome)
                event.link.set_credit(self.credit)
            case events.SettlementReceived():
                if is_outcome(event.delivery.remote_state):
                    event.delivery.settle(event.delivery.remote_state)
                # What is resumed has taken credit as well.
                event.delivery.link.set_credit(self.credit)
            case events.OutcomeReceived() if self.is_durable(event.delivery.link):
                self.on_outcome(event.delivery)
            case events.CreditReceived() if self.is_durable(event.link):
                self.feed_durably(event.link)
            case events.DetachReceived():
                event.link.detach(closed=event.closed)
                self.put_away(event.link, event.closed)
            case events.SessionTerminated():
                for link in connection.links.values():
                    if link.session is event.session:
                        self.put_away(link, False)
            case _:
                super().default(connection, event)

    def is_durable(self, link: Any) -> bool:
        return (link.name, link.is_sender) in self.kept

    def put_away(self, link: Any, closed: bool) -> None:
        kept = self.kept.get((link.name, link.is_sender))
        if kept is None:
            return
        if closed:
            del self.kept[link.name, link.is_sender]
        elif isinstance(link, ReceiverLink):
            kept.incoming.update(
                (tag, delivery)
                for tag, delivery in link.unsettled.items()
                if delivery.complete or self.keeps_parts
            )
        else:
            kept.outgoing.update(link.unsettled)
        link.unsettled = {}

    # ── Sending ────────────────────────────────────────────────────────────────────────────────

    def feed_durably(self, link: SenderLink) -> None:
        """Resume what is to be resumed, then send what there is."""
        kept = self.terminus(link)
        resumption = link.resumption
        if resumption is not None and link.usable:
            for tag, delivery in list(resumption.unsettled.items()):
                if link.credit == 0:
                    return
                resolution = resumption.resolution(delivery)
                if resolution is Resolution.RESEND and not resumption.whole:
                    link.withdraw(delivery)
                    kept.again.append((tag, kept.payloads[tag]))
                    continue
                self.resolutions.append(resolution)
                link.resume(delivery, kept.payloads[tag])
                if resolution is Resolution.SETTLE:
                    self.end(kept, delivery)
        if not link.usable or (resumption is not None and not resumption.whole):
            return
        while kept.again and link.credit > 0:
            tag, payload = kept.again.popleft()
            link.send(payload, tag=tag)
        assert link.source is not None
        messages = self.messages[link.source.address]
        while messages and link.credit > 0:
            payload = messages.popleft()
            kept.number += 1
            tag = b"m%d" % kept.number
            kept.payloads[tag] = payload
            link.send(payload, tag=tag)

    def on_outcome(self, delivery: OutgoingDelivery) -> None:
        if delivery.remote_settled or is_outcome(delivery.remote_state):
            delivery.settle()
            self.end(self.terminus(delivery.link), delivery)

    def end(self, kept: Kept, delivery: OutgoingDelivery) -> None:
        """A message of ours has come to its end."""
        payload = kept.payloads.pop(delivery.tag)
        state = delivery.remote_state
        if isinstance(state, Released):
            source = delivery.link.source
            assert source is not None
            self.messages[source.address].appendleft(payload)
        self.ended.setdefault(delivery.tag, []).append(state)


def is_whole(link: ReceiverLink) -> bool:
    """Whether both maps of the link were complete."""
    remote = link.remote_attach
    return not (remote is not None and remote.incomplete_unsettled) and (
        link.resumption is None or link.resumption.complete
    )


async def settled(broker: Keeper) -> None:
    """Wait until the broker has nothing unsettled."""
    while any(kept.payloads for kept in broker.kept.values()):  # noqa: ASYNC110
        await asyncio.sleep(0)
