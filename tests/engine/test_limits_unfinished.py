"""Messages that are not complete: what they take is counted, and free again however they end."""

from __future__ import annotations

from collections.abc import Callable
from sys import getsizeof

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from ferrymq.engine.connection import Connection
from ferrymq.engine.delivery import IncomingDelivery
from ferrymq.engine.events import AttachReceived, BeginReceived, LinkFailed, OpenReceived
from ferrymq.engine.input import FrameInput
from ferrymq.engine.receiver import ReceiverLink
from ferrymq.engine.session import Session
from ferrymq.engine.settings import ConnectionSettings
from ferrymq.engine.unfinished import Budget, Unfinished
from ferrymq.errors import RemoteProtocolError
from ferrymq_types.messaging import Target
from ferrymq_types.transport import Attach, Begin, Detach, End, Open, Role, Transfer


def frame(channel: int, body: object, payload: bytes = b"") -> bytes:
    writer = BytesWriter()
    body.encode(writer)  # type: ignore[attr-defined]
    content = writer.getvalue() + payload
    return (8 + len(content)).to_bytes(4) + b"\x02\0" + channel.to_bytes(2) + content


class Server:
    """The receiving side, with a client that is made of frames."""

    def __init__(self, budget: Budget, limit: int = 0, **settings: int) -> None:
        self.engine = Connection(
            ConnectionSettings(
                container_id="s",
                initiator=False,
                max_unfinished=limit,
                unfinished=budget,
                keeps_partial=False,
                **settings,
            ),
            0.0,
        )
        self.failures: list[LinkFailed] = []
        self.say(b"AMQP\0\1\0\0" + frame(0, Open(container_id="c")))
        self.say(frame(0, Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9)))
        for handle in range(3):
            self.attach(handle)

    def say(self, data: bytes) -> None:
        engine = self.engine
        engine.receive_data(data, 0.0)
        for event in engine.take_events():
            if isinstance(event, OpenReceived):
                engine.open()
            elif isinstance(event, BeginReceived):
                event.session.accept()
            elif isinstance(event, AttachReceived) and isinstance(event.link, ReceiverLink):
                event.link.accept(source=None, target=Target(address="t"))
                event.link.set_credit(100)
            elif isinstance(event, LinkFailed):
                self.failures.append(event)
        engine.data_to_send()

    def attach(self, handle: int) -> None:
        self.say(
            frame(
                0,
                Attach(
                    name=f"l{handle}",
                    handle=handle,
                    role=Role.SENDER,
                    initial_delivery_count=0,
                    target=Target(address="t"),
                ),
            )
        )

    def begin(self, handle: int, size: int, settled: bool = False) -> None:
        """The first frame of a message that goes on."""
        transfer = Transfer(handle=handle, delivery_id=handle, delivery_tag=b"%d" % handle,
                            settled=settled, more=True)  # fmt: skip
        self.say(frame(0, transfer, bytes(size)))

    def more(self, handle: int, size: int, more: bool = True, aborted: bool = False) -> None:
        self.say(frame(0, Transfer(handle=handle, more=more, aborted=aborted), bytes(size)))

    @property
    def session(self) -> Session:
        return self.engine.channels.by_remote[0]


def _detach(server: Server) -> None:
    server.say(frame(0, Detach(handle=0, closed=False)))


def _refuse(server: Server) -> None:
    link = server.session.links["l0", False]
    link.detach(closed=True)


ENDINGS: dict[str, Callable[[Server], object]] = {
    "last frame": lambda server: server.more(0, 5, more=False),
    "abort": lambda server: server.more(0, 0, aborted=True),
    "detach of theirs": _detach,
    "detach of ours": _refuse,
    "end": lambda server: server.say(frame(0, End())),
    "end of ours": lambda server: server.session.end(),
    "another delivery in between": lambda server: server.say(
        frame(0, Transfer(handle=0, delivery_id=77, more=True))
    ),
    "close": lambda server: server.engine.close(),
    "nonsense": lambda server: server.say(b"\0\0\0\1\2\0\0\0"),
    "loss": lambda server: server.engine.receive_eof(1.0),
}


@pytest.mark.spec("2.7.5")
@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("ending", list(ENDINGS))
def test_what_was_counted_is_given_back(ending: str, settled: bool) -> None:
    budget = Budget()
    server = Server(budget)
    server.begin(0, 1000, settled)
    server.more(0, 500)
    assert budget.held == server.engine.channels.unfinished.held == 1500
    ENDINGS[ending](server)
    assert budget.held == 0
    server.engine.receive_eof(2.0)
    assert budget.held == 0


def test_the_link_pays_and_the_others_do_not() -> None:
    budget = Budget()
    server = Server(budget, 1000)
    server.begin(0, 400)
    server.begin(1, 500)
    server.begin(2, 101)
    (failure,) = server.failures
    assert failure.link.name == "l2"
    assert isinstance(failure.error, RemoteProtocolError)
    assert failure.error.condition == "amqp:resource-limit-exceeded"
    assert budget.held == 900
    # What was on its way when it failed is ignored, and not counted.
    server.more(2, 300)
    server.more(2, 300, more=False)
    assert budget.held == 900
    server.more(0, 100)
    server.more(0, 5000, more=False)
    assert len(server.failures) == 1
    assert budget.held == 500


def test_several_connections_share_a_budget() -> None:
    budget = Budget(1000)
    one, two = Server(budget), Server(budget)
    one.begin(0, 900)
    two.begin(0, 101)
    assert two.failures and not one.failures
    assert budget.held == 900
    one.engine.receive_eof(1.0)
    assert budget.held == 0
    two.begin(1, 1000)
    assert len(two.failures) == 1


def test_links_have_a_number() -> None:
    server = Server(Budget(), max_links=4)
    server.attach(3)
    assert len(server.engine.channels.links) == 4
    server.attach(4)
    assert not server.engine.channels.links
    assert server.engine.opened


def _delivery() -> IncomingDelivery:
    link = Server(Budget()).session.links["l0", False]
    assert isinstance(link, ReceiverLink)
    return IncomingDelivery(link, 0, b"t", 0)


@given(st.lists(st.binary(max_size=3), max_size=2000))
def test_pieces_cost_what_they_have(pieces: list[bytes]) -> None:
    delivery = _delivery()
    for piece in pieces:
        delivery._received += len(piece)
        delivery._add(piece, 0)
    assert delivery.data() == b"".join(pieces)
    held = 0 if delivery._begun is None else getsizeof(delivery._begun)
    assert held <= sum(map(len, pieces)) * 9 // 8 + 4096


def test_a_frame_in_tiny_pieces() -> None:
    content = bytes(range(256)) * 200
    whole = (8 + len(content)).to_bytes(4) + b"\x02\0\0\0" + content
    input = FrameInput()
    ready = False
    for at in range(0, len(whole), 2):
        assert not ready
        if input.feed(whole[at : at + 2]):
            ready = input.next_frame(1 << 20, 0)
        assert len(input._chunks) * 64 <= at + 4096 + 128
    assert ready
    assert input.data[input.reader.pos : input.reader.end] == content
    # Nothing of it is kept until more comes.
    assert not input.next_frame(1 << 20, 0)
    assert input.data == b""


def test_a_count_that_is_over_counts_no_more() -> None:
    budget = Budget()
    unfinished = Unfinished(0, budget)
    link = _delivery().link
    assert unfinished.add(link, 10)
    unfinished.clear()
    unfinished.end(link)
    assert budget.held == 0
