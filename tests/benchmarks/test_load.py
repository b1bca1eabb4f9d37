"""The load client finds out what a broker does to its messages, and says so."""

from __future__ import annotations

import json
import subprocess

import pytest

from bench.loops.load import Plan
from bench.process import Server
from bench.tree import Trees, command, environment
from tests.benchmarks.relay import Mangle, Relay


def plan(**changes: object) -> Plan:
    fields: dict[str, object] = {
        "address": "q", "count": 90, "warm_up": 10, "size": 100, "in_flight": 20, "credit": 16,
        "settled": False, "run": 7,
    }  # fmt: skip
    return Plan(**(fields | changes))  # type: ignore[arg-type]


def faithful(messages: list[bytes]) -> list[bytes]:
    return messages


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("size", [16, 100, 255, 256, 1024])
def test_a_faithful_broker_passes(settled: bool, size: int) -> None:
    relay = Relay(plan(settled=settled, size=size), faithful, 1)
    relay.run()
    tally = relay.receiver.tally
    assert (tally.received, tally.lost) == (100, 0)
    faults = (tally.duplicated, tally.reordered, tally.damaged, tally.foreign)
    assert faults == (0, 0, 0, 0)
    assert relay.sender.finished
    assert relay.sender.accepted == 100
    assert 0 < relay.receiver.began < relay.receiver.ended


@pytest.mark.parametrize(
    ("mangle", "fault", "lost"),
    [
        (lambda m: m[1:], "lost", 1),
        (lambda m: [m[0], *m], "duplicated", 0),
        (lambda m: [m[1], m[0], *m[2:]], "reordered", 0),
        (lambda m: [m[0][:-1] + b"\xff", *m[1:]], "damaged", 1),
        (lambda m: [m[0][:-5], *m[1:]], "damaged", 1),
        (lambda m: [b"\x00\x53\x77\x40", *m[1:]], "foreign", 1),
    ],
)
def test_a_fault_is_found(mangle: Mangle, fault: str, lost: int) -> None:
    relay = Relay(plan(), mangle, 3)
    relay.run()
    tally = relay.receiver.tally
    names = ("duplicated", "reordered", "damaged", "foreign")
    found = {name for name in names if getattr(tally, name)}
    assert found == ({fault} - {"lost"})
    assert tally.lost == lost


@pytest.mark.parametrize("settled", [False, True])
def test_messages_in_flight_are_bounded(settled: bool) -> None:
    relay = Relay(plan(in_flight=5, settled=settled), faithful, 1)
    tally = relay.receiver.tally
    most = 0
    while tally.lost or not relay.sender.finished:
        done = tally.received if settled else relay.sender.settled
        relay.step()
        most = max(most, relay.sender.sent - done)
        assert relay.sender.sent - (tally.received if settled else relay.sender.settled) <= 5
    assert most >= 5


def test_a_refusal_is_no_acceptance() -> None:
    relay = Relay(plan(), faithful, 1, reject=True)
    relay.run()
    assert relay.sender.settled == 100
    assert relay.sender.accepted == 0


def test_the_command_against_the_broker() -> None:
    trees = Trees(pure=True)
    arguments = command("ferrymq_broker", "serve", "--listen", "amqp://127.0.0.1:0", "--memory")
    with Server("ferrymq", arguments, trees.broker) as server:
        assert server.cpu_seconds() is None or server.cpu_seconds() > 0  # type: ignore[operator]
        done = subprocess.run(
            command("bench.load", f"--url=amqp://127.0.0.1:{server.port}", "--count=300",
                    "--warm-up=20", "--in-flight=10", "--credit=10"),
            env=environment(trees.loops), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert result["ok"] and result["drained"]
        assert result["rate"] > 0
    assert server.stop() == 0


def test_sections_take_turns_before_the_body() -> None:
    heads = [b"\x00\x53\x70\x45", b""]
    seen: list[bytes] = []

    def look(messages: list[bytes]) -> list[bytes]:
        seen.extend(messages)
        return messages

    relay = Relay(plan(heads=heads), look, 4)
    relay.run()
    assert [message.startswith(heads[0]) for message in seen] == [True, False, True, False]
    assert (relay.receiver.tally.received, relay.receiver.tally.lost) == (100, 0)
