"""A server that says whatever a test wants, for tests of the running client.

    def script(server):
        with server.accept() as peer:
            attach = peer.begin().expect("attach")
            peer.send(attach_frame(...))

    with Server(script) as server:
        async with connect(server.url) as connection: ...

The script runs in a thread of its own, so that the client may be asyncio's or the blocking one.
What goes wrong in it is raised at the end of the block.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Final, Self

from tests.raw.answers import Answer, Composite
from tests.raw.frames import (
    AMQP_HEADER,
    SASL_HEADER,
    SASL_MECHANISMS,
    SASL_OUTCOME,
    attach_frame,
    begin_frame,
    close_frame,
    detach_frame,
    end_frame,
    flow_frame,
    open_frame,
    sasl_frame,
    source,
    target,
)
from tests.raw.values import NULL, array, string, ubyte, uint, ushort
from tests.raw.wire import PATIENCE, Wire

# Fields of an attach that scripts look at (AMQP 1.0 §2.7.3).
NAME: Final = 0
HANDLE: Final = 1
RECEIVES: Final = 2
SOURCE_OF: Final = 5
TARGET_OF: Final = 6
UNSETTLED: Final = 7


class ServedPeer(Wire):
    """The server's end of one connection."""

    def open(self, opening: bytes = b"") -> Self:
        """Answer the client's headers, its SASL layer if it has one, and its open."""
        header = self.take(8)
        if header == SASL_HEADER:
            mechanism = b"\x09ANONYMOUS"
            self.send(SASL_HEADER, sasl_frame(SASL_MECHANISMS, array(b"\xa3", 1, mechanism)))
            self.expect("sasl-init")
            self.send(sasl_frame(SASL_OUTCOME, ubyte(0)))
            header = self.take(8)
        assert header == AMQP_HEADER, header
        self.send(AMQP_HEADER, opening or open_frame(string("server")))
        self.expect("open")
        return self

    def begin(self, opening: bytes = b"", incoming_window: int = 0x7FFFFFFF) -> Self:
        """Answer the open and the begin of the client's first session, on channel 0."""
        asked = self.open(opening).expect("begin")
        self.send(
            begin_frame(remote_channel=ushort(asked.channel), incoming_window=incoming_window)
        )
        return self

    def attached(
        self,
        asked: Answer | None = None,
        credit: int = 100,
        source_sent: bytes | None = None,
        target_sent: bytes | None = None,
        unsettled: bytes = NULL,
        snd_settle_mode: bytes | None = None,
        rcv_settle_mode: bytes | None = None,
    ) -> Answer:
        """Answer an attach, the next frame if none is given, and give credit to a sender.

        Without further word the answer has the addresses and the settle modes that were asked for.
        """
        asked = asked or self.expect("attach")
        name, handle = asked.field(NAME), asked.field(HANDLE)
        assert isinstance(name, str) and isinstance(handle, int)
        receives = bool(asked.field(RECEIVES))
        self.send(
            attach_frame(
                name, handle, receiver=not receives,
                source=_address(asked, SOURCE_OF, source) if source_sent is None else source_sent,
                target=_address(asked, TARGET_OF, target) if target_sent is None else target_sent,
                snd_settle_mode=_mode(asked, 3) if snd_settle_mode is None else snd_settle_mode,
                rcv_settle_mode=_mode(asked, 4) if rcv_settle_mode is None else rcv_settle_mode,
                unsettled=unsettled,
            )
        )  # fmt: skip
        if not receives and credit:
            self.send(flow_frame(uint(handle), uint(credit), uint(0)))
        return asked

    def finish(self) -> None:
        """Answer detaches and ends until the client closes, and answer that."""
        while (said := self.read()) is not None:
            if said.name == "detach":
                self.send(detach_frame(_number(said.field(0)), closed=said.field(1) is True))
            elif said.name == "end":
                self.send(end_frame())
            elif said.name == "close":
                self.send(close_frame())
                return


def _number(value: object) -> int:
    assert isinstance(value, int), value
    return value


def _mode(asked: Answer, at: int) -> bytes:
    mode = asked.field(at)
    return ubyte(mode) if isinstance(mode, int) else NULL


def _address(asked: Answer, at: int, make: Callable[[bytes], bytes]) -> bytes:
    terminus = asked.field(at)
    if not isinstance(terminus, Composite):
        return NULL
    found = terminus.field(0)
    return make(string(found) if isinstance(found, str) else NULL)


class Server:
    """Loopback, with a script in a thread. ``with Server(script) as server``."""

    def __init__(self, script: Callable[[Server], None]) -> None:
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(PATIENCE)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failure: BaseException | None = None

    @property
    def url(self) -> str:
        """Where it listens: `amqp://127.0.0.1:PORT`."""
        return f"amqp://127.0.0.1:{self._listener.getsockname()[1]}"

    def accept(self) -> ServedPeer:
        """Take the next connection of a client; to be called by the script."""
        connected, _ = self._listener.accept()
        return ServedPeer(connected)

    def _run(self) -> None:
        try:
            self._script(self)
        except BaseException as failure:
            self._failure = failure
        finally:
            # A client that is still waiting is not to wait for a script that is over.
            self._listener.close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(2 * PATIENCE)
        assert not self._thread.is_alive(), "the script has not come to its end"
        if self._failure is not None:
            raise self._failure
