"""Dispositions that name four thousand million deliveries, links that come and go beside thousands:
what a few bytes may cost (AMQP 1.0 §2.7.6)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hostile.site import Site
from tests.raw.client import Client
from tests.raw.frames import (
    attach_frame,
    detach_frame,
    disposition_frame,
    flow_frame,
    source,
    target,
)
from tests.raw.values import TRUE, composite, data_section, string, uint, ulong

LIVE = 10_000
# The furthest that is not before the first, by the arithmetic of serial numbers.
FAR = uint(0x7FFFFFFE)

ACCEPTED = composite(0x24, [])
RECEIVED = composite(0x23, [uint(0), ulong(0)])

WIDE = {
    "nothing": disposition_frame(0, FAR),
    "received": disposition_frame(0, FAR, state=RECEIVED),
    "of-the-senders-role": disposition_frame(0, FAR, receiver=False, settled=TRUE),
    "backwards": disposition_frame(5, uint(0), state=RECEIVED),
    "all": disposition_frame(0, uint(0xFFFFFFFF), state=RECEIVED),
    "beyond": disposition_frame(LIVE, FAR, settled=TRUE, state=ACCEPTED),
}


@pytest.fixture(scope="module")
def holder(site_of_module: Site) -> Iterator[Client]:
    """A client that holds thousands of messages and settles none."""
    with site_of_module.client() as client:
        client.begin().sender("held").publish([data_section()] * LIVE)
        client.receiver("held", LIVE)
        client.arrivals(LIVE)
        yield client


@pytest.fixture(scope="module")
def site_of_module(broker: object, witness: object) -> Site:
    return Site(broker, witness)  # type: ignore[arg-type]


@pytest.mark.spec("2.7.6")
@pytest.mark.parametrize("said", WIDE.values(), ids=WIDE)
def test_a_range_costs_what_is_live_in_it(site: Site, holder: Client, said: bytes) -> None:
    """A hundred at a time, each of all there could be."""

    def attack() -> None:
        holder.send(said * 100, flow_frame(echo=TRUE))
        holder.expect("flow", "empty")

    site.endures(attack)


def test_links_that_come_and_go_beside_many_deliveries(site: Site, holder: Client) -> None:
    link = attach_frame("x", 7, target=target(string("x")), source=source()) + detach_frame(7)

    def attack() -> None:
        holder.send(link * 100)
        for _ in range(100):
            holder.expect("detach", "attach", "flow", "empty")

    site.endures(attack)


@pytest.mark.spec("2.7.6")
def test_one_disposition_settles_all(site: Site, holder: Client) -> None:
    holder.send(disposition_frame(0, FAR, settled=TRUE, state=ACCEPTED), flow_frame(echo=TRUE))
    holder.expect("flow", "empty")
    with site.client() as client:
        client.begin().sender("held").publish([data_section(b"last")])
        client.receiver("held", 1)
        # None of them has come back.
        assert client.arrivals(1)[0].payload == data_section(b"last")
        client.close()
