"""Many clients at a time, each of which is hardly more than a socket."""

from __future__ import annotations

import contextlib
import resource
import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from tests.raw.frames import AMQP_HEADER, SASL_HEADER, open_frame, sasl_init
from tests.raw.process import PATIENCE


@contextlib.contextmanager
def sockets() -> Iterator[list[socket.socket]]:
    """A list for sockets that are closed in the end; as many as the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    crowd: list[socket.socket] = []
    try:
        yield crowd
    finally:
        for one in crowd:
            one.close()


def connect(port: int) -> socket.socket:
    """One more of them."""
    return socket.create_connection(("127.0.0.1", port), PATIENCE)


def greeting() -> bytes:
    """All that a client says to be let in, at once."""
    return SASL_HEADER + sasl_init() + AMQP_HEADER + open_frame()


def answered(one: socket.socket, patience: float = PATIENCE) -> bytes:
    """What comes next, within `patience`; nothing if nothing comes or the transport ends."""
    one.settimeout(patience)
    try:
        return one.recv(65536)
    except (TimeoutError, ConnectionError):
        return b""


def is_let_in(one: socket.socket) -> bool:
    """Whether the broker answers the greeting with an open."""
    data = b""
    while b"ferrymq" not in data:
        piece = answered(one)
        if not piece:
            return False
        data += piece
    return True


def wait_for_ends(crowd: list[socket.socket], patience: float) -> float:
    """Wait until the broker has ended all of them; how many seconds that took."""
    began = time.monotonic()
    poll = select.poll()
    left = {one.fileno(): one for one in crowd}
    for number in left:
        poll.register(number, select.POLLIN)
    while left:
        rest = began + patience - time.monotonic()
        assert rest > 0, f"{len(left)} of {len(crowd)} are still connected after {patience} s"
        for number, _ in poll.poll(rest * 1000):
            try:
                ended = not left[number].recv(65536)
            except ConnectionError:
                ended = True
            if ended:
                poll.unregister(number)
                del left[number]
    return time.monotonic() - began


def processor_time(pid: int) -> float:
    """Seconds of processor time that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100.0
