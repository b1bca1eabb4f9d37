"""The codec part: every contender does the whole job before it is timed."""

from __future__ import annotations

import importlib
from types import ModuleType, SimpleNamespace

import pytest

from bench.loops import transfer
from bench.machine import variant
from bench.measure import Contender, Effort, take_turns
from bench.parts import codec
from bench.peers import ours
from bench.samples import PAYLOAD


def test_all_cases_are_measured() -> None:
    report = codec.measure(Effort(rounds=2, seconds=0.001))
    assert not report.failures
    compiled = variant("bench.loops.transfer") == "compiled"
    cases = {figure.case for figure in report.figures if figure.contender == codec.OURS}
    assert len(cases) == 8
    for case in cases:
        figure = report.figure(case, codec.OURS, codec.OPERATIONS)
        assert figure is not None
        assert len(figure.values) == 2
        assert min(figure.values) > 0
    frames_0_9_1 = (codec.DELIVER, codec.READ_DELIVER, codec.DELIVERY, codec.PUBLISH)
    for case in (codec.ENCODE_FRAME, codec.DECODE_FRAME, *frames_0_9_1):
        loop = report.figure(case, codec.COMPILED_LOOP, codec.OPERATIONS)
        assert (loop is not None) == compiled


@pytest.mark.parametrize("name", ["bench.peers.pyamqp", "bench.peers.proton_binding"])
def test_peers_pass_the_check(name: str) -> None:
    try:
        peer = importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"{error.name} is not installed")
    codec.check([ours, peer])


def fake(**changes: object) -> ModuleType:
    operations = {name: getattr(ours, name) for name in vars(ours) if not name.startswith("_")}
    return SimpleNamespace(**(operations | {"NAME": "fake"} | changes))  # type: ignore[return-value]


@pytest.mark.parametrize(
    "changes",
    [
        {"encode_frame": lambda payload: ours.encode_frame(payload[1:])},
        {"decode_frame": lambda data: None},
        {"encode": lambda message: ours.encode(ours.Message(b"other"))},
        {"read": lambda message: (message.message_id,)},
    ],
)
def test_a_contender_that_does_less_is_refused(changes: dict[str, object]) -> None:
    codec.check([fake()])
    with pytest.raises(AssertionError, match="fake"):
        codec.check([fake(**changes)])


def test_the_compiled_loops_do_what_they_count() -> None:
    one = transfer.frames(1, PAYLOAD)
    performative, payload = ours.decode_frame(one)
    assert (performative.delivery_id, payload) == (transfer.FIRST_ID, PAYLOAD)
    assert transfer.encode(130, PAYLOAD) == 130 * len(one)
    batch = transfer.frames(transfer.BATCH, PAYLOAD)
    assert transfer.decode(2 * transfer.BATCH, batch) == 2 * transfer.BATCH * len(PAYLOAD)


def test_contenders_take_turns() -> None:
    order: list[str] = []

    def run(name: str) -> Contender:
        def operation(count: int) -> None:
            order.append(name)
            sum(range(count * 100))

        return Contender(name, operation)

    rates = take_turns([run("a"), run("b")], Effort(rounds=4, seconds=0.001))
    assert order[-8:] == ["a", "b", "b", "a", "a", "b", "b", "a"]
    assert {name: len(values) for name, values in rates.items()} == {"a": 4, "b": 4}
