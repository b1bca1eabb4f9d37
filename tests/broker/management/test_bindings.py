"""Exchanges and bindings are made, seen and taken back."""

from __future__ import annotations

import pytest

from ferrymq_types.messaging import Accepted
from tests.broker.harness import Network
from tests.broker.management.asker import Asker


def test_a_binding_leads_from_an_exchange_to_a_queue(net: Network, asker: Asker) -> None:
    net.declare("q")
    assert asker.ask("CREATE", "exchange", "x", {"routing": "topic"}).status == 201
    body: dict[str, object] = {"exchange": "x", "destination": "q", "key": "order.*"}
    made = asker.ask("CREATE", "binding", None, body)
    assert made.status == 201
    assert made.map() == {
        "name": "x/order.*/q",
        "identity": "x/order.*/q",
        "type": "org.ferrymq.binding",
        "exchange": "x",
        "destination": "q",
        "key": "order.*",
        "arguments": {},
    }
    again = asker.ask("CREATE", "binding", None, dict(body))
    assert (again.status, again.body) == (200, made.body)
    assert asker.ask("READ", "binding", "x/order.*/q").body == made.body
    (sent,) = net.connect().sender("x::order.new").send(b"a")
    assert isinstance(sent.remote_state, Accepted)
    assert net.queue("q").message_count() == 1
    assert asker.ask("READ", "exchange", "x").map()["bindings"] == 1
    assert asker.ask("DELETE", "binding", "x/order.*/q").status == 204
    assert asker.query("binding") == []
    assert asker.ask("DELETE", "binding", "x/order.*/q").status == 404


def test_bindings_are_told_apart_by_their_arguments(net: Network, asker: Asker) -> None:
    net.declare("a/b")
    asker.ask("CREATE", "exchange", "h", {"routing": "headers"})
    for arguments in ({"x-match": "all", "n": 5}, {"x-match": "all", "n": "5"}, {"m": "a;b=c"}):
        body = {"exchange": "h", "destination": "a/b", "arguments": arguments}
        assert asker.ask("CREATE", "binding", None, body).status == 201
    names = [str(row["name"]) for row in asker.query("binding")]
    assert names == sorted(names) and len(set(names)) == 3
    assert "h//a%2Fb/n=!5;x-match=all" in names
    for name in names:
        assert asker.ask("READ", "binding", name).status == 200
    body = {"exchange": "h", "destination": "a/b", "arguments": {"m": "a;b=c"}}
    assert asker.ask("DELETE", "binding", None, body).status == 204
    assert asker.ask("DELETE", "binding", None, dict(body)).status == 404
    assert len(asker.query("binding")) == 2
    for row in asker.query("binding"):
        asker.ask("DELETE", "binding", str(row["identity"]))
    assert asker.ask("READ", "exchange", "h").map()["bindings"] == 0


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"destination": "q"}, 400, "exchange"),
        ({"exchange": "x"}, 400, "destination"),
        ({"exchange": "q", "destination": "q"}, 404, "no exchange 'q'"),
        ({"exchange": "x", "destination": "none"}, 404, "none"),
        ({"exchange": "x", "destination": "$management"}, 400, "$management"),
        ({"exchange": "x", "destination": "q", "key": 5}, 400, "key"),
        ({"exchange": "x", "destination": "q", "arguments": [1]}, 400, "arguments"),
        ({"exchange": "x", "destination": "q", "keys": "k"}, 400, "keys"),
    ],
)
def test_what_cannot_be_bound(
    net: Network, asker: Asker, body: dict[str, object], status: int, words: str
) -> None:
    net.declare("q")
    asker.ask("CREATE", "exchange", "x")
    answer = asker.ask("CREATE", "binding", None, body)
    assert answer.status == status
    assert words in answer.description
    assert asker.query("binding") == []


def test_an_exchange_gets_another_alternate_and_routes_as_before(
    net: Network, asker: Asker
) -> None:
    net.declare("rest")
    asker.ask("CREATE", "exchange", "x", {"routing": "fanout"})
    assert asker.ask("UPDATE", "exchange", "x", {"alternate": "rest"}).status == 200
    net.connect().sender("x").send(b"a")
    assert net.queue("rest").message_count() == 1
    refused = asker.ask("UPDATE", "exchange", "x", {"routing": "topic"})
    assert refused.status == 409
    assert "routing" in refused.description
    assert asker.ask("CREATE", "exchange", "x", {"routing": "direct"}).status == 409
    assert asker.ask("DELETE", "exchange", "x").status == 204
