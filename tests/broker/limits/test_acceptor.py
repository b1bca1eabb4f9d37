"""Accepting while the system refuses: a pause, a warning, and then it goes on."""

from __future__ import annotations

import asyncio
import errno
import socket

import pytest

from ferrymq_broker.counters import Counters
from ferrymq_broker.server import acceptor
from ferrymq_broker.server.acceptor import Acceptor, bind
from ferrymq_broker.server.connection_limits import ConnectionLimits
from ferrymq_broker.server.peer_address import place_of


class Exhausted(socket.socket):
    """A socket of a system that has no descriptor left, a few times."""

    refusals = 0
    asked = 0

    def accept(self) -> tuple[socket.socket, object]:
        """One more client, or none."""
        self.asked += 1
        if self.refusals:
            self.refusals -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_no_descriptors(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop does not ask the system again and again, and who waits gets in."""
    monkeypatch.setattr(acceptor, "RETRY", 0.2)

    async def run() -> None:
        listening = Exhausted(socket.AF_INET, socket.SOCK_STREAM)
        listening.setblocking(False)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.refusals = 2
        connection_limits = ConnectionLimits(0, 0, Counters())
        made = asyncio.Event()

        class Made(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                made.set()
                transport.close()

            def connection_lost(self, exc: Exception | None) -> None:
                connection_limits.leave(self)

        taking = Acceptor([listening], Made, connection_limits)
        began = asyncio.get_running_loop().time()
        _, writer = await asyncio.open_connection(*listening.getsockname())
        async with asyncio.timeout(20):
            await made.wait()
        # Twice 0.2 s; uvloop's clock goes by milliseconds.
        assert asyncio.get_running_loop().time() - began >= 0.39
        # Twice in vain, once for the client, and once to learn that there is no other.
        assert listening.asked <= 4
        writer.close()
        taking.close()
        await taking.wait_closed()

    if loop == "uvloop":
        uvloop = pytest.importorskip("uvloop")
        uvloop.run(run())
    else:
        asyncio.run(run())


async def test_an_address_that_is_taken() -> None:
    (taken,) = await bind("127.0.0.1", 0, 1)
    port = taken.getsockname()[1]
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}: .*in use"):
        await bind("127.0.0.1", port, 1)
    taken.close()


def test_a_census_counts_each_once() -> None:
    connection_limits = ConnectionLimits(3, 2, Counters())
    one, two, three, four = object(), object(), object(), object()
    assert connection_limits.enter(one, "a") and connection_limits.enter(two, "a")
    assert not connection_limits.enter(three, "a")
    assert connection_limits.enter(three, "b")
    assert not connection_limits.enter(four, "c")
    connection_limits.leave(one)
    connection_limits.leave(one)
    assert len(connection_limits) == 2 and connection_limits.of("a") == 1
    assert connection_limits.enter(four, "c")
    # Who was refused has no place to leave.
    connection_limits.leave(object())
    assert len(connection_limits) == 3


@pytest.mark.parametrize(
    ("peer", "counted"),
    [
        (("192.0.2.7", 1), "192.0.2.7"),
        (("2001:db8:0:1:aaaa::7", 1, 0, 0), "2001:db8:0:1::/64"),
        (("2001:db8:0:1:bbbb::8", 2, 0, 0), "2001:db8:0:1::/64"),
        (("fe80::1%eth0", 2, 0, 2), "fe80::/64"),
        ("", ""),
    ],
)
def test_whose_place_a_client_takes(peer: object, counted: str) -> None:
    """A network of IPv6 has more addresses than there are limits for."""
    assert place_of(peer) == counted
