"""Aliases are made, led elsewhere and deleted."""

from __future__ import annotations

import pytest

from tests.broker.harness import Network
from tests.broker.management.asker import Asker


def test_an_alias_leads_to_its_address(net: Network, asker: Asker) -> None:
    net.declare("orders-2024")
    net.declare("orders-2025")
    made = asker.ask("CREATE", "alias", "orders", {"address": "orders-2024"})
    assert made.status == 201
    assert asker.ask("CREATE", "alias", "orders", {"address": "orders-2024"}).status == 200
    assert asker.ask("CREATE", "alias", "orders", {"address": "orders-2025"}).status == 409
    sender = net.connect().sender("orders")
    sender.send(b"one")
    assert net.queue("orders-2024").message_count() == 1
    moved = asker.ask("UPDATE", "alias", "orders", {"address": "orders-2025"})
    assert moved.map()["address"] == "orders-2025"
    net.connect().sender("orders").send(b"two")
    # A link stays where it is.
    sender.send(b"three")
    assert net.queue("orders-2024").message_count() == 2
    assert net.queue("orders-2025").message_count() == 1
    assert asker.query("alias", attributeNames=["name", "address"]) == [
        {"name": "orders", "address": "orders-2025"}
    ]
    assert asker.ask("DELETE", "alias", "orders").status == 204
    assert asker.ask("DELETE", "alias", "orders").status == 404
    assert asker.ask("UPDATE", "alias", "orders", {"address": "x"}).status == 404


@pytest.mark.parametrize(
    ("name", "address", "status"),
    [
        ("a", None, 400),
        ("a", 5, 400),
        ("a", "", 400),
        ("a", "a", 400),
        ("a", "$management", 400),
        ("a", "broker", 400),
        ("$a", "q", 400),
        ("q", "elsewhere", 409),
    ],
)
def test_what_cannot_be_an_alias(
    net: Network, asker: Asker, name: str, address: object, status: int
) -> None:
    net.declare("q")
    net.space.aliases["broker"] = "$management"
    body: dict[str, object] = {} if address is None else {"address": address}
    assert asker.ask("CREATE", "alias", name, body).status == status
    assert list(net.space.aliases) == ["broker"]


def test_an_alias_of_an_alias_leads_on(net: Network, asker: Asker) -> None:
    net.declare("q")
    net.declare("p")
    for name, address in (("near", "q"), ("far", "near"), ("farther", "far")):
        assert asker.ask("CREATE", "alias", name, {"address": address}).status == 201
    net.connect().sender("farther").send(b"one")
    assert asker.ask("READ", "queue", "farther").map()["messages"] == 1
    assert asker.ask("UPDATE", "alias", "near", {"address": "p"}).status == 200
    net.connect().sender("farther").send(b"two")
    assert (net.queue("q").message_count(), net.queue("p").message_count()) == (1, 1)
    for circle in ("near", "far", "farther", "farther::part"):
        refused = asker.ask("UPDATE", "alias", "near", {"address": circle})
        assert refused.status == 400 and "circle" in refused.description


def test_there_are_as_many_aliases_as_nodes(net: Network, asker: Asker) -> None:
    net.space.max_nodes = 3
    for number in range(3):
        assert asker.ask("CREATE", "alias", f"a{number}", {"address": "q"}).status == 201
    refused = asker.ask("CREATE", "alias", "a3", {"address": "q"})
    assert refused.status == 507
    assert asker.ask("CREATE", "alias", "a2", {"address": "q"}).status == 200
    asker.ask("DELETE", "alias", "a0")
    assert asker.ask("CREATE", "alias", "a3", {"address": "q"}).status == 201
