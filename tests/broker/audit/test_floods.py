"""What one client causes too much of does not get into a log, and is counted."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq_broker import audit
from ferrymq_broker.event_log import log
from ferrymq_broker.log_rate_limit import LogRateLimiter, host_of
from ferrymq_broker.management.setup import install
from tests.broker.harness import Network
from tests.broker.management.rules import guard, rule, user


@given(
    steps=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30)), max_size=200),
    burst=st.integers(1, 5),
)
def test_nothing_is_lost_without_being_counted(steps: list[tuple[str, int]], burst: int) -> None:
    now = 0.0
    floods = LogRateLimiter(burst, 0.5, lambda: now)
    asked = dict.fromkeys("abc", 0)
    told = dict.fromkeys("abc", 0)
    times: dict[str, list[float]] = {name: [] for name in "abc"}
    for client, wait in steps:
        now += wait / 10
        asked[client] += 1
        left_out = floods.let(client)
        if left_out is not None:
            told[client] += 1 + left_out
            times[client].append(now)
    for client in "abc":
        told[client] += floods.end(client)
        assert told[client] == asked[client]
        # Never more than the burst, and what time has earned since.
        for at, first in enumerate(times[client]):
            for count, last in enumerate(times[client][at:], 1):
                assert count <= burst + (last - first) * 0.5 + 1e-6


def test_few_clients_are_remembered() -> None:
    floods = LogRateLimiter(1, 0.0, lambda: 0.0)
    for number in range(10_000):
        assert floods.let(str(number)) == 0
    assert len(floods._accounts) <= 4096


@pytest.mark.parametrize(
    ("peer", "host"),
    [("10.0.0.1:5000", "10.0.0.1"), ("::1:5000", "::1"), ("test", "test"), ("/run/x", "/run/x")],
)
def test_the_address_behind_connections(peer: str, host: str) -> None:
    assert host_of(peer) == host


def _entries(caplog: pytest.LogCaptureFixture, name: str) -> list[dict[str, object]]:
    return [dict(r.msg) for r in caplog.records if r.name == name and isinstance(r.msg, dict)]


def _sum(entries: list[dict[str, object]], fact: str) -> int:
    return sum(int(str(entry.get(fact, 0))) for entry in entries)


def test_refused_attaches_in_a_loop_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    net = Network()
    guard(net)
    net.transport.peer = "10.1.1.1:1111"
    client = net.connect()
    for number in range(1000):
        client.sender(f"q{number}", name=f"link{number}").link.detach(closed=True)
    client.lose()
    # An entry a second gets through: how many are left out at the end depends on the machine.
    refused = _entries(caplog, audit.LOGGER)
    recorded = [entry for entry in refused if entry["event"] == "access-refused"]
    ended = [entry for entry in refused if entry["event"] == "refusals-left-out"]
    assert 50 <= len(recorded) < 100
    assert len(recorded) + _sum(recorded, "left_out") + _sum(ended, "count") == 1000
    assert {entry["peer"] for entry in refused} == {"10.1.1.1:1111"}
    journal = _entries(caplog, "ferrymq.broker")
    assert len(journal) < 200
    assert journal[-1]["event"] == "connection lost"
    assert _sum(journal, "left_out") > 800


def test_who_floods_the_log_hides_no_change(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    net = Network()
    install(net.space, net.broker)
    guard(net, rule("user:eve", "create", "mine"))
    eve = user(net, "eve")
    for number in range(300):
        assert eve.ask("READ", "queue", f"q{number}").status == 403
    assert eve.ask("CREATE", "queue", "mine").status == 201
    changes = [e for e in _entries(caplog, audit.LOGGER) if e["event"] == "management"]
    (change,) = changes
    assert (change["user"], change["operation"], change["name"]) == ("eve", "CREATE", "mine")
    assert (change["status"], change["type"]) == (201, "queue")


def test_other_clients_are_heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(1000):
        log.info("noise", peer="10.2.2.2:1")
        audit.connection_refused("10.2.2.2:1", "too many")
    log.info("a word", peer="10.3.3.3:1")
    audit.connection_refused("10.3.3.3:1", "too many")
    assert _entries(caplog, "ferrymq.broker")[-1]["event"] == "a word"
    assert _entries(caplog, audit.LOGGER)[-1]["peer"] == "10.3.3.3:1"
