"""A client or a server over an engine, who answers every event as it should, and what an orderly
peer says to it."""

from __future__ import annotations

from ferrymq.engine import Connection, ConnectionSettings, Plain, ReceiverLink
from ferrymq.engine.events import (
    AttachReceived,
    AuthenticationRequested,
    BeginReceived,
    CloseReceived,
    CreditReceived,
    DeliveryReceived,
    DetachReceived,
    EndReceived,
    Event,
    OpenReceived,
    Terminated,
)
from ferrymq.engine.states import ConnectionState
from ferrymq.errors import LocalProtocolError
from ferrymq_types.messaging import Accepted, Released
from ferrymq_types.security import SaslCode, SaslInit, SaslMechanisms, SaslOutcome
from ferrymq_types.transport import Close, Detach, Disposition, End, Open, Role
from tests.support.grammar import check_grammar
from tests.support.scenes import MAX32, peer_attach, peer_begin, peer_flow, transfer
from tests.support.script import AMQP_HEADER, SASL_HEADER, encoded, on

THEIRS = Open(container_id="peer", max_frame_size=512, idle_time_out=1000)

# Everything a peer may say in an orderly life, twice where the state then differs.
CLIENT_SAYS: list[object] = [
    SASL_HEADER,
    SaslInit(mechanism="PLAIN", initial_response=b"\0ann\0secret"),
    AMQP_HEADER,
    THEIRS,
    on(1, peer_begin()),
    on(1, peer_attach("in", 0, Role.SENDER)),
    on(1, peer_attach("out", 1, Role.RECEIVER)),
    on(1, peer_flow(handle=1, delivery_count=0, link_credit=5, echo=True)),
    on(1, transfer(0, 0, b"a"), b"payload"),
    on(1, transfer(0, 1, b"b", more=True), b"half"),
    on(1, transfer(0, None, None), b"half"),
    on(1, transfer(0, 2, b"c", more=True), b"half"),
    on(1, transfer(0, None, None, aborted=True)),
    on(1, Disposition(role=Role.RECEIVER, first=0, last=3, settled=True, state=Accepted())),
    on(1, Disposition(role=Role.SENDER, first=0, last=MAX32 // 2, settled=True)),
    on(1, peer_flow(handle=1, delivery_count=5, link_credit=5, drain=True)),
    on(1, Disposition(role=Role.RECEIVER, first=4, state=Released())),
    on(1, Detach(handle=0)),
    on(1, peer_attach("in", 0, Role.SENDER)),
    on(1, Detach(handle=0, closed=True)),
    on(1, End()),
    on(1, peer_begin()),
    on(1, End()),
    Close(),
]
SERVER_SAYS: list[object] = [
    SASL_HEADER,
    SaslMechanisms(sasl_server_mechanisms=["PLAIN"]),
    SaslOutcome(code=SaslCode.OK),
    AMQP_HEADER,
    THEIRS,
    on(1, peer_begin(0)),
    on(1, peer_attach("r", 0, Role.SENDER)),
    on(1, peer_attach("s", 1, Role.RECEIVER)),
    on(1, peer_flow(handle=1, delivery_count=0, link_credit=5)),
    on(1, transfer(0, 0, b"a"), b"payload"),
    on(1, Disposition(role=Role.RECEIVER, first=0, last=3, settled=True, state=Accepted())),
    on(1, Detach(handle=0, closed=True)),
    on(1, End()),
    Close(),
]


class User:
    """A client or server over one engine that answers every event as it should."""

    def __init__(self, initiator: bool) -> None:
        self.engine = Connection(
            ConnectionSettings(
                container_id="engine",
                initiator=initiator,
                sasl=Plain("ann", "secret") if initiator else None,
                sasl_mechanisms=["ANONYMOUS", "PLAIN"],
                max_frame_size=4096,
                handle_max=7,
                channel_max=7,
                incoming_window=16,
                idle_time_out=30.0,
            ),
            0.0,
        )
        self.over = False
        self.output = b""
        if initiator:
            self.engine.open()

    def receive(self, data: bytes, now: float = 0.0) -> None:
        self.engine.receive_data(data, now)
        self.work()

    def work(self) -> None:
        while events := self.engine.take_events():
            for event in events:
                assert not self.over, "something happened after the end"
                self.over = isinstance(event, Terminated)
                self.answer(event)
        self.output += self.engine.data_to_send()

    def answer(self, event: Event) -> None:
        """What every user may do without looking at the state of anything."""
        engine = self.engine
        match event:
            case AuthenticationRequested():
                engine.accept_authentication()
            case OpenReceived():
                if engine.settings.initiator:
                    self.use()
                else:
                    engine.open()
            case BeginReceived():
                if not event.session.initiated:
                    event.session.accept()
            case AttachReceived():
                link = event.link
                if not link.initiated:
                    try:
                        link.accept(max_message_size=1000)
                    except LocalProtocolError as error:
                        # The peer has left us no handle, or no room for our answer.
                        assert error.condition in (
                            "amqp:resource-limit-exceeded",
                            "amqp:frame-size-too-small",
                        )
                if isinstance(link, ReceiverLink):
                    link.set_credit(10)
            case CreditReceived():
                link = event.link
                while link.usable and link.credit > 0 and link.parked < 5:
                    if link.remote_max_message_size not in range(1, 600):
                        link.send(b"x" * 600)
                    else:
                        break
                link.drained()
            case DeliveryReceived():
                event.delivery.settle(Accepted())
            case DetachReceived():
                event.link.detach(closed=event.closed)
            case EndReceived():
                event.session.end()
            case CloseReceived():
                engine.close()

    def use(self) -> None:
        if self.engine.opened:
            session = self.engine.begin()
            try:
                session.attach_receiver("r", source=None).set_credit(5)
                session.attach_sender("s", target=None)
            except LocalProtocolError as error:
                # The peer was first to attach the name, on a session of its own (§2.6.1).
                assert "attached already" in str(error)

    def check(self) -> None:
        """The engine is in a state that it has a name for, and ends when everything does."""
        engine = self.engine
        assert engine.state in ConnectionState
        assert engine.finished is self.over
        check_grammar(self.output)
        engine.receive_eof(1.0)
        self.work()
        assert engine.finished and self.over
        assert engine.state is ConnectionState.END
        assert engine.next_deadline() is None
        engine.receive_data(AMQP_HEADER, 2.0)
        engine.handle_timeout(100.0)
        self.work()


def said(initiator: bool) -> list[bytes]:
    """What the peer of an engine says: of an initiating one if `initiator`."""
    return [encoded(item) for item in (SERVER_SAYS if initiator else CLIENT_SAYS)]
