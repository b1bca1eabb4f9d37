"""The far side of a load, in memory: two server engines and a queue that can be made to err."""

from __future__ import annotations

from collections.abc import Callable

from bench.loops.load import End, Plan, Receiver, Sender
from ferrymq.engine.connection import Connection
from ferrymq.engine.events import (
    AttachReceived,
    AuthenticationRequested,
    BeginReceived,
    CloseReceived,
    CreditReceived,
    DeliveryReceived,
)
from ferrymq.engine.receiver import ReceiverLink
from ferrymq.engine.sender import SenderLink
from ferrymq.engine.settings import ConnectionSettings
from ferrymq_types.messaging import Accepted, Rejected

Mangle = Callable[[list[bytes]], list[bytes]]


class Relay:
    """Takes what the sender sends, lets `mangle` at it, hands it to the receiver.

    The first `held` messages are kept back until they are all there, so that they can be
    rearranged; everything after them passes at once.
    """

    def __init__(self, plan: Plan, mangle: Mangle, held: int, *, reject: bool = False) -> None:
        self.sender = Sender(plan)
        self.receiver = Receiver(plan)
        self.mangle = mangle
        self.held = held
        self.reject = reject
        self.kept: list[bytes] = []
        self.out: SenderLink | None = None
        self.queue: list[bytes] = []
        self.servers = {self.sender: self._server(), self.receiver: self._server()}

    def _server(self) -> Connection:
        settings = ConnectionSettings(
            container_id="relay", initiator=False, sasl_mechanisms=["ANONYMOUS"]
        )
        server = Connection(settings, 0.0)
        server.open()
        return server

    def run(self) -> None:
        """Exchange bytes until both sides are silent and the sender has nothing to send."""
        while self.step():
            pass

    def step(self) -> bool:
        """One exchange in each direction, and a turn for the sender; whether anything moved."""
        moved = False
        ends: tuple[End, ...] = (self.receiver, self.sender)
        for end in ends:
            server = self.servers[end]
            data = end.take()
            if data:
                server.receive_data(data, 0.0)
            self._serve(server)
            answer = server.data_to_send()
            if answer:
                end.receive(answer)
            moved = moved or bool(data or answer)
        if self.receiver.attached:
            self.sender.arrived = self.receiver.tally.received
            self.sender.pump()
        return moved or self.sender.connection.has_output

    def _serve(self, server: Connection) -> None:
        for event in server.take_events():
            if isinstance(event, AuthenticationRequested):
                server.accept_authentication()
            elif isinstance(event, BeginReceived):
                event.session.accept()
            elif isinstance(event, AttachReceived):
                event.link.accept()
                if isinstance(event.link, ReceiverLink):
                    event.link.set_credit(1000)
                elif isinstance(event.link, SenderLink):
                    self.out = event.link
            elif isinstance(event, DeliveryReceived):
                event.delivery.settle(Rejected() if self.reject else Accepted())
                self._take_in(event.delivery.payload)
            elif isinstance(event, CreditReceived):
                self._hand_out()
                event.link.drained()
            elif isinstance(event, CloseReceived):
                server.close()

    def _take_in(self, message: bytes) -> None:
        self.kept.append(message)
        if len(self.kept) == self.held:
            self.queue += self.mangle(self.kept)
        elif len(self.kept) > self.held:
            self.queue.append(message)
        self._hand_out()

    def _hand_out(self) -> None:
        while self.out is not None and self.queue and self.out.credit > 0:
            self.out.send(self.queue.pop(0))
