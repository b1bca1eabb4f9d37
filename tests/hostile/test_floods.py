"""Clients that send as fast as they can what takes long to read: others have their turn."""

from __future__ import annotations

import pytest

from tests.hostile.poison import HEAVY
from tests.hostile.site import Site
from tests.raw.client import Client
from tests.raw.frames import flow_frame, transfer_frame
from tests.raw.values import TRUE, binary, mapping, symbol, uint

HEAVIEST = ("many-empty-lists", "many-nulls", "many-times-2^32-1-times-45", "many-keys")


def flood(clients: list[Client], data: bytes) -> None:
    for client in clients:
        client.send(data)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("name", HEAVIEST)
def test_frames_full_of_values(site: Site, name: str, count: int) -> None:
    data = flow_frame(properties=mapping(symbol("x"), HEAVY[name])) * 8
    clients = [site.client().begin() for _ in range(count)]
    try:
        site.endures(lambda: flood(clients, data), attackers=count)
    finally:
        for client in clients:
            client.socket.close()


@pytest.mark.parametrize("count", [1, 3])
def test_many_small_frames(site: Site, count: int) -> None:
    clients = [site.client().begin() for _ in range(count)]
    try:
        site.endures(lambda: flood(clients, flow_frame() * 5_000), attackers=count)
    finally:
        for client in clients:
            client.socket.close()


def test_deliveries_that_are_given_up(site: Site, address: str) -> None:
    """Aborted by their second frame, which settles them (AMQP 1.0 §2.6.14); they use up credit, and
    get it back."""
    number = 0
    with site.client() as client:
        client.begin().sender(address)

        def attack() -> None:
            nonlocal number
            for _ in range(200):
                client.wait_for_credit(number)
                client.send(
                    transfer_frame(bytes(1000), 0, uint(number), binary(b"t"), more=TRUE),
                    transfer_frame(b"", 0, aborted=TRUE),
                )
                number += 1

        site.endures(attack)
        client.close()
