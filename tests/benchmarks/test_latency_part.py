"""The latency part: what counts as the message having come back."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading

import pytest

from bench.loops.transfer import frames
from bench.parts import latency
from bench.process import Server
from bench.tree import Trees, command

EMPTY = bytes((0, 0, 0, 8, 2, 0, 0, 0))


def test_a_transfer_is_recognised_behind_other_frames() -> None:
    frame = frames(1, b"payload")
    near, far = socket.socketpair()
    with near, far:
        near.settimeout(10)
        sent = threading.Event()

        def send() -> None:
            for piece in (EMPTY, frame[:5], frame[5:-1], frame[-1:]):
                far.sendall(piece)
            sent.set()

        writer = threading.Thread(target=send)
        writer.start()
        assert latency.read_transfer(near) == EMPTY + frame
        writer.join()
        assert sent.is_set()


def test_percentiles() -> None:
    values = [float(i) for i in range(100, 0, -1)]
    assert latency.percentile(values, 0.5) == 51.0
    assert latency.percentile(values, 0.99) == 100.0
    assert latency.percentile([3.0], 0.99) == 3.0


@pytest.mark.slow
def test_broker_and_echo_are_pinged() -> None:
    trees = Trees(pure=True)
    arguments = command("ferrymq_broker", "serve", "--listen", "amqp://127.0.0.1:0", "--memory")
    echo = Server("echo", command("bench.peers.echo"), trees.loops)
    with Server("ferrymq", arguments, trees.broker) as broker, echo:
        report = latency.measure(
            {"ferrymq": broker.port}, echo.port, rounds=2, count=20, pauses={"now": 0.0}
        )
    assert not report.failures
    assert {figure.case for figure in report.figures} == {
        f"{mode}, now, {share}" for mode in ("pre-settled", "unsettled") for share in ("p50", "p99")
    }
    assert len(report.comparisons) == 4
    assert all(comparison.ratio > 0 for comparison in report.comparisons)


def test_the_measuring_process_needs_only_what_is_compiled_for_it() -> None:
    # It runs from `build/bench`, in which the build hook is not.
    code = "import sys; sys.modules['hatch_build'] = None; import bench.worker"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert not done.stderr
    assert done.returncode == 0
