"""The codec: transfer frames and messages, encoded and decoded, beside the peers' codecs.

Peers are Python libraries and are called from an interpreted loop; so is ferrymq in the figures
that are compared with them. "compiled loop" is ferrymq called as by its own engine; the engine
makes no other calls, so its design demands a rate of that figure.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from bench import samples
from bench.loops import deliver
from bench.loops import transfer as loop
from bench.machine import build, variant
from bench.measure import Contender, Effort, Run, take_turns
from bench.peers import ours
from bench.results import Figure, Report

OPERATIONS: Final = "operations/s"
COMPILED_LOOP: Final = "ferrymq, compiled loop"
OURS: Final = "ferrymq"
PEERS: Final = {"bench.peers.pyamqp": "azure-eventhub", "bench.peers.proton_binding": "Proton"}

ENCODE_FRAME: Final = "transfer frame, encode"
DECODE_FRAME: Final = "transfer frame, decode"
ENCODE: Final = "message, encode"
BUILD_ENCODE: Final = "message, build and encode"
DECODE: Final = "message, decode"
DECODE_READ: Final = "message, decode and read"

DELIVER: Final = "AMQP 0-9-1, basic.deliver frame, encode"
READ_DELIVER: Final = "AMQP 0-9-1, basic.deliver frame, decode"
DELIVERY: Final = "AMQP 0-9-1, delivery of 100 B, encode"
PUBLISH: Final = "AMQP 0-9-1, publish of 100 B, decode"
PROPERTIES: Final = "AMQP 0-9-1, six properties, encode"
READ_PROPERTIES: Final = "AMQP 0-9-1, six properties, decode"


def measure(effort: Effort) -> Report:
    """Measure all cases with every installed peer."""
    report = Report("codec", options={"rounds": effort.rounds, "seconds": effort.seconds})
    sides: list[ModuleType] = [ours]
    for module, package in PEERS.items():
        try:
            sides.append(importlib.import_module(module))
        except ImportError:
            report.notes.append(f"{package} is not installed: left out")
    check(sides)
    for case in (ENCODE_FRAME, DECODE_FRAME, ENCODE, BUILD_ENCODE, DECODE, DECODE_READ):
        contenders = [Contender(side.NAME, _run(case, side)) for side in sides]
        compiled = _compiled(case)
        if compiled is not None and variant("bench.loops.transfer") == "compiled":
            contenders.insert(0, Contender(COMPILED_LOOP, compiled))
        rates = take_turns(contenders, effort)
        report.figures += [Figure(case, name, OPERATIONS, rates[name]) for name in rates]
    _measure_0_9_1(report, effort)
    _judge(report)
    report.build = build()
    return report


def _measure_0_9_1(report: Report, effort: Effort) -> None:
    """Measure AMQP 0-9-1: frames of the hot path in loops like the server's, and properties."""
    properties = samples.properties_0_9_1()
    raw = properties.to_bytes()
    frames = deliver.frames(deliver.BATCH)
    messages = deliver.messages(deliver.BATCH, raw, samples.PAYLOAD)
    body = samples.PAYLOAD
    runs: dict[str, Run] = {
        DELIVER: _discarding(deliver.encode),
        READ_DELIVER: _discarding(deliver.decode, frames),
        DELIVERY: _discarding(deliver.deliveries, raw, body),
        PUBLISH: _discarding(deliver.publishes, messages),
    }
    if variant("bench.loops.deliver") == "compiled":
        for case, run in runs.items():
            rates = take_turns([Contender(COMPILED_LOOP, run)], effort)
            figure = Figure(case, COMPILED_LOOP, OPERATIONS, rates[COMPILED_LOOP])
            if case in (DELIVER, READ_DELIVER):
                figure.demand = 2_000_000
            report.figures.append(figure)
    for case, operation, argument in (
        (PROPERTIES, type(properties).to_bytes, properties),
        (READ_PROPERTIES, type(properties).from_bytes, raw),
    ):
        rates = take_turns([Contender(OURS, _loop(operation, argument))], effort)
        report.figures.append(Figure(case, OURS, OPERATIONS, rates[OURS]))


def _discarding(function: Callable[..., int], *arguments: object) -> Run:
    def run(count: int) -> None:
        function(count, *arguments)

    return run


def _judge(report: Report) -> None:
    """Add comparisons and demands."""
    for case, times in ((ENCODE_FRAME, 10.0), (DECODE_FRAME, 5.0)):
        figure = report.figure(case, COMPILED_LOOP, OPERATIONS)
        if figure is not None:
            figure.demand = 2_000_000
        report.compare(case, COMPILED_LOOP, "pyamqp", at_least=times)
        report.compare(case, OURS, "pyamqp")
        report.compare(case, OURS, "Proton")
    for case in (ENCODE, BUILD_ENCODE, DECODE, DECODE_READ):
        report.compare(case, OURS, "Proton", at_least=5.0)
        report.compare(case, OURS, "pyamqp")


def _compiled(case: str) -> Run | None:
    if case == ENCODE_FRAME:
        return functools.partial(_encode_compiled, samples.PAYLOAD)
    if case == DECODE_FRAME:
        return functools.partial(_decode_compiled, loop.frames(loop.BATCH, samples.PAYLOAD))
    return None


def _encode_compiled(payload: bytes, count: int) -> None:
    loop.encode(count, payload)


def _decode_compiled(data: bytes, count: int) -> None:
    loop.decode(count, data)


def _run(case: str, side: Any) -> Run:
    """Return the interpreted loop over one side's operation."""
    if case == ENCODE_FRAME:
        return _loop(side.encode_frame, samples.PAYLOAD)
    if case == DECODE_FRAME:
        return _loop(side.decode_frame, side.encode_frame(samples.PAYLOAD))
    if case == ENCODE:
        return _loop(side.encode, side.build())
    if case == BUILD_ENCODE:
        build, encode = side.build, side.encode

        def build_and_encode(count: int) -> None:
            for _ in range(count):
                encode(build())

        return build_and_encode
    # All sides decode the same bytes.
    data = ours.build().encode()
    if case == DECODE:
        return _loop(side.decode, data)
    decode, read = side.decode, side.read

    def decode_and_read(count: int) -> None:
        for _ in range(count):
            read(decode(data))

    return decode_and_read


def _loop(operation: Any, argument: object) -> Run:
    def run(count: int) -> None:
        for _ in range(count):
            operation(argument)

    return run


def check(sides: list[ModuleType]) -> None:
    """Check that every side does the complete operation, so that its figure is comparable.

    Raises:
        AssertionError: the bytes or objects of a side are wrong.
    """
    wanted = (samples.MESSAGE_ID, samples.SUBJECT, 3, samples.BODY)
    for side in sides:
        frame = side.encode_frame(samples.PAYLOAD)
        performative, payload = ours.decode_frame(frame)
        assert payload == samples.PAYLOAD, f"{side.NAME}: another payload"
        assert performative.delivery_id == samples.DELIVERY_ID, f"{side.NAME}: another delivery"
        assert performative.delivery_tag == samples.TAG, f"{side.NAME}: another tag"
        assert side.decode_frame(frame), f"{side.NAME}: nothing decoded"
        message = ours.decode(side.encode(side.build()))
        assert message == ours.build(), f"{side.NAME}: another message: {message!r}"
        found = tuple(_text(part) for part in side.read(side.decode(ours.build().encode())))
        assert found == tuple(map(_text, wanted)), f"{side.NAME}: read {found!r}"


def _text(part: object) -> object:
    """Decode a string, which pyamqp returns as bytes."""
    return part.encode() if isinstance(part, str) else part
