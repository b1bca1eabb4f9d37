"""Messages that never end, on one link and on many, in large pieces and in tiny ones."""

from __future__ import annotations

import select
import time

from tests.hostile.site import Site
from tests.raw.client import Client
from tests.raw.frames import attach_frame, flow_frame, source, target, transfer_frame
from tests.raw.process import MIB, PATIENCE
from tests.raw.values import TRUE, binary, data_section, string, uint

EXCEEDED = "amqp:resource-limit-exceeded"
PIECE = bytes(60_000)


CONFIG = """[limits]
max-message-size = "2MiB"
unfinished = "4MiB"
unfinished-total = "6MiB"
# Nobody here counts the frames.
incoming-window = 1000000
"""


def _links(client: Client, count: int, address: str) -> Client:
    client.begin()
    port = client.socket.getsockname()[1]
    for handle in range(count):
        where = target(string(address))
        client.send(attach_frame(f"u{port}-{handle}", handle, target=where, source=source()))
        client.expect("attach", "flow")
    return client


def _piece(handle: int, first: bool, payload: bytes = PIECE) -> bytes:
    if first:
        return transfer_frame(payload, handle, uint(handle), binary(b"t"), more=TRUE)
    return transfer_frame(payload, handle, more=TRUE)


def _detached(clients: list[Client]) -> list[str]:
    """Why the broker has detached links of some of them, when it has."""
    deadline = time.monotonic() + PATIENCE
    conditions: list[str] = []
    while not conditions:
        left = deadline - time.monotonic()
        assert left > 0, "nobody was refused"
        for client in clients:
            for answer in client.come():
                error = answer.error() if answer.name == "detach" else None
                conditions += [error[0]] if error else []
        if not conditions:
            select.select([client.socket for client in clients], [], [], left)
    return conditions


def test_one_that_never_ends(site: Site, address: str) -> None:
    def attack() -> None:
        with site.client() as client:
            _links(client, 1, address)
            for number in range(40):
                client.send(_piece(0, number == 0))
            assert client.verdict()[:2] == ("link", "amqp:link:message-size-exceeded")

    site.endures(attack)


def test_many_that_never_end(site: Site, address: str) -> None:
    """None is too large, all together are: one link pays, and the others can end."""

    def attack() -> None:
        with site.client() as client:
            _links(client, 10, address)
            for number in range(8):
                for handle in range(10):
                    client.send(_piece(handle, number == 0))
            verdict = client.verdict()
            assert verdict[:2] == ("link", EXCEEDED)

    site.endures(attack)


def test_many_connections_that_never_end(site: Site, address: str) -> None:
    """Each has less than it may, all together have not: then whoever sends more pays."""

    def attack() -> None:
        clients = [site.client() for _ in range(4)]
        try:
            for client in clients:
                _links(client, 1, address)
            for number in range(32):
                for client in clients:
                    client.send(_piece(0, number == 0))
            verdicts = _detached(clients)
            assert set(verdicts) == {EXCEEDED}
            assert len(verdicts) < len(clients), "nobody was left in peace"
        finally:
            for client in clients:
                client.socket.close()
        # What they had is free again: a message of the full size comes through.
        with site.client() as client:
            _links(client, 1, address)
            for number in range(30):
                client.send(_piece(0, number == 0))
            client.send(transfer_frame(data_section(), 0))
            client.expect("disposition", "flow")

    site.endures(attack, 16 * MIB)


def test_tiny_pieces(site: Site, address: str) -> None:
    """A message in pieces of two bytes, or of none, takes the memory of a message: as objects of
    their own they would be nine megabytes."""
    with site.client() as client:
        _links(client, 1, address).expect("flow")
        before = site.broker.memory()
        client.send(_piece(0, True, b""))
        for payload in (b"", b"xy"):
            tiny = _piece(0, False, payload) * 1000
            for _ in range(200):
                client.send(tiny)
        # It has all of them when it answers this, by a flow of a link, not of the window.
        client.send(flow_frame(uint(0), delivery_count=uint(0), echo=TRUE))
        while client.expect("flow").field(4) is None:
            pass
        site.broker.memory_is_back(before, 4 * MIB)
        client.send(transfer_frame(b"", 0, aborted=TRUE))
        client.close()
