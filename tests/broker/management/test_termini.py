"""Termini that outlive their links, as management shows and ends them."""

from __future__ import annotations

from tests.broker.harness import Network
from tests.broker.management.asker import Asker
from tests.broker.termini.clients import Consumer, drained, filled


def test_what_a_link_has_left_behind_is_shown_and_ended(net: Network, asker: Asker) -> None:
    filled(net, b"a")
    one = Consumer(net)
    one.connect()
    one.attach()
    (row,) = asker.query(entityType="terminus")
    shown = asker.ask("READ", "terminus", str(row["identity"])).map()
    assert row["identity"] == "worker/out/link" and shown["link-name"] == "link"
    assert shown["unsettled"] == 1 and shown["attached"] is True and shown["address"] == "q"
    assert asker.ask("DELETE", "terminus", "worker/out/link").status == 409
    one.restart(broker=False)
    assert drained(net) == []
    assert asker.ask("DELETE", "terminus", "worker/out/link").status == 204
    assert drained(net) == [b"a"]
    assert asker.ask("DELETE", "terminus", "worker/out/link").status == 404
