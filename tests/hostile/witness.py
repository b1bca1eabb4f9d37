"""A client that minds its own business while others attack, and tells how long that took it.

It is a process of its own: it sends a message every few milliseconds, however long the earlier ones
take, and gets it back from a queue. What it measures is how long the broker kept it waiting, so of
each round trip it takes off the time in which this process, or the broker's, was ready to run and
had to wait for a processor: that is the machine's doing.

    python -m tests.hostile.witness PORT PID

writes `ready`, then answers each line `FROM TO` with the latencies, in seconds, of what was sent
between the two by the monotonic clock, as a list in JSON.
"""

from __future__ import annotations

import bisect
import json
import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, Self

from tests.raw.answers import Answer
from tests.raw.client import Client
from tests.raw.frames import (
    attach_frame,
    begin_frame,
    flow_frame,
    open_frame,
    source,
    target,
    transfer_frame,
)
from tests.raw.values import TRUE, binary, data_section, string, ubyte, uint

ROOT: Final = Path(__file__).resolve().parents[2]

# Seconds between two messages. Two hundred a second: a block of 20 ms is seen by some, one of
# 200 ms by more than one in a hundred of ten seconds' worth.
PACE: Final = 0.005
# Seconds that are no harm, whatever it was before: a frame of each attacker's, which the broker
# works through in one go, on a slow machine; interpreted, one of 64 KiB may take twenty
# milliseconds.
FLOORS: Final = {"compiled": 0.060, "pure": 0.120}
# A machine that needs more seconds of processor time for `_count` has higher floors in proportion.
COUNTED: Final = 0.005
# Seconds of watching at least: at first, and when that looked bad. What a busy machine did passes;
# what the broker does is there each time.
LOOKS: Final = (0.15, 1.5, 3.0)
# Further looks, as long as the broker waits for a processor for this part of the time: what it
# cannot work off then piles up, and what the witness sees says nothing of the broker. With two
# workers on two cores it waits for 0.13 of the time in half of the looks, and never for 0.5.
MORE_LOOKS: Final = 4
BUSY: Final = 0.5


def percentile(latencies: list[float], part: float) -> float:
    """Of so many parts of a hundred the latency is at most this."""
    ordered = sorted(latencies)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part / 100))]


def slowness() -> float:
    """How many times longer than `COUNTED` this machine takes, at least 1.

    By processor time: what others take of it is what `BUSY` is for.
    """
    return max(1.0, min(_count() for _ in range(3)) / COUNTED)


def _count() -> float:
    began = time.process_time()
    total = 0
    for number in range(200_000):
        total += number
    return time.process_time() - began


class Measured(NamedTuple):
    """What the witness saw in a while: seconds."""

    median: float
    p99: float
    number: int

    def __str__(self) -> str:
        return f"p50 {1e3 * self.median:.2f} ms, p99 {1e3 * self.p99:.2f} ms of {self.number}"


class Witness:
    """The process, and its verdict. ``with Witness(port, pid) as witness``."""

    def __init__(self, port: int, pid: int) -> None:
        command = [sys.executable, "-m", "tests.hostile.witness", str(port), str(pid)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": ""},
        )  # fmt: skip
        self.baseline = Measured(0.0, 0.0, 0)
        self._slowness = slowness()
        self._schedstat = Path(f"/proc/{pid}/schedstat")

    def __enter__(self) -> Self:
        try:
            assert self._process.stdout is not None
            assert self._process.stdout.readline() == "ready\n", "the witness was not let in"
            self.settle()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def settle(self, seconds: float = 0.5) -> None:
        """See what it is like when nobody attacks, once the first messages are through."""
        time.sleep(0.1)
        began = time.monotonic()
        time.sleep(seconds)
        self.baseline = self.between(began, time.monotonic())

    def between(self, began: float, ended: float) -> Measured:
        """What it was like between two times of the monotonic clock."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{began!r} {ended!r}\n")
        line = self._process.stdout.readline()
        assert line, "the witness has lost its connection, or its messages"
        latencies: list[float] = json.loads(line)
        return Measured(percentile(latencies, 50), percentile(latencies, 99), len(latencies))

    def allows(self, seen: Measured, attackers: int = 1) -> bool:
        """Whether that is no worse than it may be: each of the attackers has its turn before us."""
        # The process that watches has no use for all that this imports.
        from tests.conftest import running_variant

        floor = attackers * FLOORS[running_variant()] * self._slowness
        return seen.p99 <= max(2 * self.baseline.p99, floor)

    def during(self, attack: Callable[[], object], seconds: float) -> Measured:
        """What it is like while an attack is made, again and again, for so long at least."""
        began = time.monotonic()
        while True:
            attack()
            now = time.monotonic()
            if now - began >= seconds:
                return self.between(began, now)

    def is_served(self, attack: Callable[[], object], attackers: int = 1) -> None:
        """Attack, and insist that the witness is served as before: p99 below twice what it was, or
        below the floor. What looks bad is looked at again, for longer. Skips the test if others
        keep the broker from its processor."""
        for seconds in (*LOOKS, *LOOKS[-1:] * MORE_LOOKS):
            began, waited = time.monotonic(), self._waited()
            seen = self.during(attack, seconds)
            if self.allows(seen, attackers):
                return
            busy = (self._waited() - waited) / (time.monotonic() - began)
            if seconds == LOOKS[-1] and busy < BUSY:
                raise AssertionError(
                    f"the witness had to wait: {seen}; before that {self.baseline}"
                )
        # Not for the process that watches.
        from pytest import skip

        skip(f"the machine is busy: the broker waited {busy:.0%} of the time; {seen}")

    def _waited(self) -> float:
        """Seconds that the broker was ready to run and had no processor, in all."""
        try:
            return int(self._schedstat.read_text().split()[1]) / 1e9
        except OSError:
            return 0.0


# -- the process -----------------------------------------------------------------------------------


class Rounds:
    """Messages on their way to a queue and back, by their numbers."""

    def __init__(self, port: int, pid: int) -> None:
        self.client = Client(port)
        self.sent: list[float] = []
        self.latencies: list[float] = []
        self._marks: list[float] = []
        self._next_back = 0
        self._stalled = 0.0
        self._schedstat = -1
        try:
            self._schedstat = os.open(f"/proc/{pid}/schedstat", os.O_RDONLY)
        except OSError:
            pass
        self.credit = 0

    def start(self) -> None:
        """Be let in, with a queue of one's own that goes with its link."""
        client = self.client
        client.open(open_frame(string("witness")))
        client.send(begin_frame())
        client.expect("begin")
        # Settled: the broker is to keep nothing of what has come back, its memory is measured.
        client.send(
            attach_frame("r", 1, receiver=True, source=source(string("witness")), target=target(),
                         snd_settle_mode=ubyte(1)),
            flow_frame(uint(1), uint(0x7FFFFFFF), uint(0)),
        )  # fmt: skip
        client.expect("attach", "flow")
        client.send(
            attach_frame("s", 0, target=target(string("witness")), source=source(),
                         snd_settle_mode=ubyte(1))
        )  # fmt: skip
        client.expect("attach")
        self._take(client.expect("flow"))

    def _take(self, flow: Answer) -> None:
        count, credit = flow.field(5), flow.field(6)
        assert isinstance(count, int) and isinstance(credit, int)
        self.credit = count + credit

    def waiting(self) -> float:
        """Seconds that this process and the broker's have waited for a processor, in all."""
        waited = 0.0
        if self._schedstat >= 0:
            try:
                waited = int(os.pread(self._schedstat, 128, 0).split()[1]) / 1e9
            except OSError:
                pass
        return waited + self._stalled

    def stall(self, seconds: float) -> None:
        """This process woke up so much later than it wanted to."""
        if seconds > 0:
            self._stalled += seconds

    def send(self) -> None:
        """The next message, if the broker lets us."""
        number = len(self.sent)
        if number >= self.credit:
            return
        payload = data_section(struct.pack(">Q", number))
        self._marks.append(self.waiting())
        self.sent.append(time.monotonic())
        self.client.send(
            transfer_frame(payload, 0, uint(number), binary(b"w"), settled=TRUE),
            *(() if number % 500 else (self._window(number),)),
        )

    def _window(self, number: int) -> bytes:
        # The broker counts our window down: say now and then that it is open.
        return flow_frame(next_incoming_id=uint(self._next_back), next_outgoing_id=number + 1)

    def receive(self) -> None:
        """What has come back."""
        for answer in self.client.come():
            if answer.name == "transfer":
                now = time.monotonic()
                number = self._next_back
                assert answer.payload.endswith(struct.pack(">Q", number)), "a message is missing"
                assert answer.field(4) is True, "the broker waits for it to be settled"
                self._next_back += 1
                self.latencies.append(
                    max(0.0, now - self.sent[number] - (self.waiting() - self._marks[number]))
                )
            elif answer.name == "flow" and answer.field(4) is not None:
                self._take(answer)
            else:
                assert answer.name in ("flow", "empty", "disposition"), answer


def serve(port: int, pid: int) -> None:
    """Exchange messages until nobody asks any more."""
    rounds = Rounds(port, pid)
    rounds.start()
    print("ready", flush=True)
    poll = select.poll()
    poll.register(rounds.client.socket, select.POLLIN)
    poll.register(0, select.POLLIN)
    due = time.monotonic()
    asked: tuple[float, float] | None = None
    while True:
        before = time.monotonic()
        found = dict(poll.poll(max(0.0, due - before) * 1000))
        now = time.monotonic()
        if not found:
            rounds.stall(now - max(due, before) - 0.001)
        if rounds.client.socket.fileno() in found:
            rounds.receive()
        if 0 in found:
            line = sys.stdin.readline()
            if not line:
                return
            began, ended = line.split()
            asked = float(began), float(ended)
        if now >= due:
            rounds.send()
            due = max(due + PACE, now)
        if asked is not None:
            first, last = (bisect.bisect_left(rounds.sent, at) for at in asked)
            if first == last:
                last = first + 1
            if len(rounds.latencies) >= last:
                print(json.dumps(rounds.latencies[first:last]), flush=True)
                asked = None


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))
