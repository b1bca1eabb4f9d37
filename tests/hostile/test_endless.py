"""Deliveries without an end: `more` on every frame (AMQP 1.0 §2.6.14)."""

from __future__ import annotations

import pytest

from tests.hostile.site import Site
from tests.raw.client import Client
from tests.raw.frames import flow_frame, transfer_frame
from tests.raw.process import MIB
from tests.raw.values import TRUE, binary, uint

# Frames between two looks at the window, of which half may be used before the broker opens it.
STEP = 1000


def begin_delivery(client: Client, address: str) -> None:
    client.begin().sender(address)
    client.send(transfer_frame(b"", 0, uint(0), binary(b"t"), more=TRUE))


def go_on(client: Client, frame: bytes, count: int) -> None:
    for _ in range(count // STEP):
        client.send(frame * STEP, flow_frame(echo=TRUE))
        client.expect("flow")


@pytest.mark.parametrize("size", [0, 1])
def test_a_delivery_without_an_end_takes_no_more_than_its_bytes(
    site: Site, address: str, size: int
) -> None:
    """Frames of nothing, or next to nothing: what there is of a delivery is not an object for
    every frame."""
    frame = transfer_frame(bytes(size), 0, more=TRUE)
    with site.client() as client:
        begin_delivery(client, address)
        go_on(client, frame, 10_000)
        before = site.broker.memory()
        go_on(client, frame, 100_000)
        assert site.broker.memory() < before + 2 * MIB
        client.close()


def test_others_are_served_while_a_delivery_does_not_end(site: Site, address: str) -> None:
    frame = transfer_frame(b"x", 0, more=TRUE)
    with site.client() as client:
        begin_delivery(client, address)
        site.endures(lambda: go_on(client, frame, 10_000))
        client.close()
