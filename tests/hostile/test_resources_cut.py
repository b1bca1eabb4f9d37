"""A network that is cut: no end comes, no refusal, no answer to anything."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import time

import pytest

from tests.hostile.site import Site
from tests.raw.client import PATIENCE, Client
from tests.raw.frames import attach_frame, flow_frame, source, target, transfer_frame
from tests.raw.process import MIB
from tests.raw.values import NULL, TRUE, binary, data_section, string, uint

IDLE = 2
_EMPTY = b"\0\0\0\x08\x02\0\0\0"


CONFIG = f"[limits]\nidle-time-out = {IDLE}\nclose-timeout = 1\n"


def cut(client: Client) -> None:
    """From now on the kernel drops every packet for this socket, unread and without a word: not
    even what the broker sends is acknowledged. The program is one instruction, `ret 0`."""
    program = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
    option = struct.pack("HL", 1, ctypes.addressof(program))
    client.socket.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_ATTACH_FILTER", 26), option)


def descriptors(site: Site) -> int:
    """How many files the broker has open."""
    return len(os.listdir(f"/proc/{site.broker.pid}/fd"))


def wait_for_descriptors(site: Site, number: int) -> None:
    """Wait until it has no more than that."""
    deadline = time.monotonic() + PATIENCE
    while descriptors(site) > number:
        assert time.monotonic() < deadline, "the connection is there still"
        time.sleep(0.05)


@pytest.mark.spec("2.4.5")
def test_a_network_that_is_cut(site: Site, address: str) -> None:
    """The idle time-out ends the connection, and another has its messages."""
    before = descriptors(site)
    gone = site.client()
    heir = site.client()
    with gone, heir:
        gone.begin().sender(address)
        gone.send(transfer_frame(data_section(b"kept"), 0, uint(0), binary(b"t"), settled=NULL))
        gone.expect("disposition")
        gone.receiver(address, credit=10)
        assert gone.expect("transfer", "flow").payload.endswith(b"kept")
        cut(gone)
        heir.begin().receiver(address, credit=10, name="heir")
        while (found := heir.read()) is not None and found.name == "empty":
            # It says now and then that it is alive.
            heir.send(_EMPTY)
        assert found is not None and found.name == "transfer"
        assert found.payload.endswith(b"kept")
        # Nobody acknowledges the end either: it is not waited for, beyond some seconds.
        heir.close()
        heir.socket.close()
        wait_for_descriptors(site, before)


def test_a_network_that_is_cut_in_the_middle_of_a_lot(site: Site, address: str) -> None:
    """What is on its way to who is gone goes back, and takes no memory for long."""
    before = descriptors(site)
    with site.client() as gone:
        gone.begin().sender(address)
        for number in range(300):
            said = (uint(number), binary(b"t"))
            gone.send(transfer_frame(data_section(bytes(60_000)), 0, *said, settled=TRUE))
        gone.send(transfer_frame(data_section(b"last"), 0, uint(300), binary(b"last")))
        gone.expect("disposition", "flow")
        memory = site.broker.memory()
        cut(gone)
        # The broker hears this: only what it says is lost.
        gone.send(
            attach_frame("r", 1, receiver=True, source=source(string(address)), target=target()),
            flow_frame(uint(1), uint(1000), uint(0)),
        )
        wait_for_descriptors(site, before)
        site.broker.memory_is_back(memory, 6 * MIB)
    with site.client() as heir:
        heir.begin().receiver(address, credit=1000)
        # The session's window is wide, and the client reads all of it.
        assert heir.arrivals(301)[-1].payload.endswith(b"last")
