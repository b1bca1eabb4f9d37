"""The clients part: each client sends and receives on each broker, and one that cannot has no
figure."""

from __future__ import annotations

import pytest

from bench.clients import CLIENTS
from bench.parts.broker import MESSAGES, Candidate
from bench.parts.clients import DIRECTIONS, ClientBench, case
from bench.process import broker
from bench.tree import Trees


@pytest.mark.slow
def test_each_client_is_measured_on_each_broker() -> None:
    trees = Trees(pure=True)
    with broker(trees) as server:
        reached = Candidate("reached", f"amqp://127.0.0.1:{server.port}")
        refused = Candidate("refused", reached.url, address="$nothing")
        report = ClientBench(trees, [reached, refused], rounds=2, count=50).measure()
    assert {(one.case, one.contender, one.unit) for one in report.figures} == {
        (case(direction, reached), client, MESSAGES)
        for direction in DIRECTIONS
        for client in CLIENTS
    }
    assert all(one.median > 1 for one in report.figures)
    assert {one.partition(": ")[0] for one in report.failures} == {
        f"refused, {client}" for client in CLIENTS
    }
    assert len(report.failures) == len(CLIENTS)
