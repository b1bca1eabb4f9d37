"""A million frames between two engines, without a divergence (see `tests/support/random_wire.py`).

`make test-all` plays them all on the compiled build, and a fifth on the interpreted one. `make
test` plays fewer. What the play must notice is tried as well: a wire that drops, doubles, reorders
or changes one frame.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from ferrymq_types.transport import Transfer
from tests.conftest import running_variant
from tests.support.lanes import amount
from tests.support.random_wire import Divergence, RandomWire
from tests.support.script import On, Raw, encoded, parse

COMPILED = running_variant() == "compiled"
SEEDS = 20 if COMPILED else amount(5, 20)
# In each play. In fewer, not everything happens.
FRAMES = amount(10_000, 50_000) if COMPILED else 10_000

# Everything that has to happen in every play.
HAPPENS = {
    "accepted",
    "attached",
    "closed",
    "closed connection",
    "credit given back",
    "drained",
    "message",
    "multi-frame",
    "outcome",
    "quiet",
    "received",
    "resumed: CONTINUE",
    "resumed: RESEND",
    "resumed: SETTLE",
    "settled early",
    "settled second",
    "suspended",
}
# What is rarer has to happen in some.
HAPPENS_SOMEWHERE = {
    "aborted",
    "attached again at once",
    "attached by both",
    "ended",
    "lost",
    "restated",
    "resumed: ABORT",
    "resumed: FORGET",
    "resumed: RESTATE",
    "sasl",
    "timer",
}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_two_engines_agree_over_a_random_wire(seed: int) -> None:
    wire = RandomWire(seed, FRAMES)
    wire.play()
    assert wire.frames >= FRAMES
    assert wire.seen.keys() >= HAPPENS


def test_what_is_rare_happens_too() -> None:
    seen: set[str] = set()
    for seed in range(100, 200):
        wire = RandomWire(seed, 5000)
        wire.play()
        seen |= wire.seen.keys()
        if seen >= HAPPENS_SOMEWHERE:
            return
    raise AssertionError(f"never happened: {HAPPENS_SOMEWHERE - seen}")


def test_a_seed_says_everything() -> None:
    plays = [RandomWire(7, 5000) for _ in range(2)]
    for play in plays:
        play.play()
    first, second = plays
    assert first.digest.digest() == second.digest.digest()
    assert (first.steps, first.seen) == (second.steps, second.seen)
    other = RandomWire(8, 5000)
    other.play()
    assert other.digest.digest() != first.digest.digest()


class Saboteur:
    """Does something to one whole transfer frame, the `number`th on the connection."""

    def __init__(self, number: int, act: Callable[[bytes], bytes]) -> None:
        self.left = number
        self.act = act

    def __call__(self, data: bytes) -> bytes:
        at = 0
        while at < len(data):
            if data.startswith(b"AMQP", at):
                at += 8
                continue
            size = int.from_bytes(data[at : at + 4], "big")
            if data[at + 8 : at + 11] == b"\x00\x53\x14":
                self.left -= 1
                if self.left == 0:
                    return data[:at] + self.act(data[at : at + size]) + data[at + size :]
            at += size
        return data


def dropped(frame: bytes) -> bytes:
    return b""


def doubled(frame: bytes) -> bytes:
    return frame + frame


def changed(frame: bytes) -> bytes:
    return frame[:-1] + bytes((frame[-1] ^ 1,))


class Reorderer(Saboteur):
    """Swaps two neighbouring transfers of one link."""

    def __init__(self, number: int) -> None:
        super().__init__(number, lambda frame: frame)

    def __call__(self, data: bytes) -> bytes:
        items = parse(data)
        for i, (one, two) in enumerate(pairwise(items)):
            if is_transfer(one) and is_transfer(two) and one.channel == two.channel:
                if one.body.handle == two.body.handle:
                    self.left -= 1
                    if self.left == 0:
                        items[i], items[i + 1] = two, one
                        return b"".join(
                            item.data if isinstance(item, Raw) else encoded(item) for item in items
                        )
        return data


def is_transfer(item: On | Raw) -> bool:
    return isinstance(item, On) and isinstance(item.body, Transfer)


SABOTAGE: dict[str, Callable[[int], Callable[[bytes], bytes]]] = {
    "dropped": lambda number: Saboteur(number, dropped),
    "doubled": lambda number: Saboteur(number, doubled),
    "changed": lambda number: Saboteur(number, changed),
    "reordered": Reorderer,
}


@pytest.mark.parametrize("how", SABOTAGE)
def test_a_faulty_wire_is_noticed_and_the_seed_shows_it_again(how: str) -> None:
    noticed = 0
    for number in range(10, 110, 10):
        messages = []
        for _ in range(2):
            try:
                RandomWire(5, 5000, SABOTAGE[how](number)).play()
            except Divergence as error:
                messages.append(str(error))
        if messages:
            noticed += 1
            assert messages[0] == messages[1]
            assert "seed 5, 5000 frames: diverged after" in messages[0]
            assert "python -m tests.support.random_wire 5 5000" in messages[0]
    # A frame may be one that nobody needs any more: its link is being closed, say.
    assert noticed >= 7
