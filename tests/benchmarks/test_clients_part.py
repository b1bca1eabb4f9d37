"""The clients part: each client sends and receives on each broker, and one that cannot has no
figure."""

from __future__ import annotations

import pytest

from bench.clients import CLIENTS, ECHO, SEND_EACH
from bench.parts.broker import MESSAGES, Candidate
from bench.parts.clients import PROCESSOR, ClientBench, case
from bench.process import broker
from bench.tree import Trees


@pytest.mark.slow
def test_each_client_is_measured_on_each_broker() -> None:
    trees = Trees(pure=True)
    with broker(trees) as server:
        reached = Candidate("reached", f"amqp://127.0.0.1:{server.port}")
        refused = Candidate("refused", reached.url, address="$nothing")
        report = ClientBench(trees, [reached, refused], rounds=2, count=50).measure()
    assert {(one.case, one.contender) for one in report.figures if one.unit == MESSAGES} == {
        (case(work, reached), client) for client, works in CLIENTS.items() for work in works
    }
    assert {(one.case, one.contender) for one in report.figures if one.unit == PROCESSOR} == {
        (case(SEND_EACH, reached), client)
        for client, works in CLIENTS.items()
        if SEND_EACH in works
    }
    assert all(one.median > 1 for one in report.figures)
    refusals = {f"refused, {client}" for client in CLIENTS if client != ECHO}
    assert {one.partition(": ")[0] for one in report.failures} == refusals
    assert len(report.failures) == len(refusals)
