"""Work in slices: how much of it is done in one pass, and who has a turn in between."""

from __future__ import annotations

from collections.abc import Callable

from ferrymq_broker.slices import PART, SLICE, SlicedTask, Slices


class Counting(SlicedTask):
    """Has so much to do, a unit at a time."""

    def __init__(self, name: str, units: int, done: list[str]) -> None:
        super().__init__()
        self.name = name
        self.units = units
        self.done = done

    def go_on(self, slices: Slices) -> bool:
        while self.units:
            if slices.is_spent():
                return False
            self.units -= 1
            self.done.append(self.name)
            slices.spend(1)
        return True


class Loop:
    """An event loop that makes one pass at a time."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.slices = Slices()
        self.slices.begin(self.calls.append, lambda: None)

    def turn(self) -> None:
        calls = self.calls.copy()
        self.calls.clear()
        for call in calls:
            call()


def test_what_fits_is_done_at_once() -> None:
    loop = Loop()
    done: list[str] = []
    loop.slices.do(Counting("a", SLICE - 1, done))
    assert len(done) == SLICE - 1 and len(loop.slices) == 0


def test_no_pass_has_more_than_a_slice() -> None:
    loop = Loop()
    done: list[str] = []
    loop.slices.do(Counting("a", 10 * SLICE, done))
    passes = [len(done)]
    while len(done) < 10 * SLICE:
        before = len(done)
        loop.turn()
        passes.append(len(done) - before)
    assert max(passes) <= SLICE and len(passes) == 10


def test_all_that_happens_before_the_loop_turns_shares_a_slice() -> None:
    loop = Loop()
    done: list[str] = []
    for number in range(100):
        loop.slices.do(Counting(str(number), SLICE // 10, done))
    assert len(done) <= SLICE
    for _ in range(12):
        loop.turn()
    assert len(done) == 100 * (SLICE // 10) and not loop.calls[1:]


def test_a_short_one_does_not_wait_for_a_long_one() -> None:
    loop = Loop()
    done: list[str] = []
    loop.slices.do(Counting("long", 100 * SLICE, done))
    loop.slices.add(Counting("short", PART // 2, done))
    loop.turn()
    assert done.count("short") == PART // 2


def test_without_an_event_loop_nothing_waits() -> None:
    slices = Slices()
    done: list[str] = []
    slices.do(Counting("a", 10 * SLICE, done))
    assert len(done) == 10 * SLICE


def test_at_the_end_all_is_done() -> None:
    loop = Loop()
    done: list[str] = []
    loop.slices.do(Counting("a", 10 * SLICE, done))
    loop.slices.finish_all()
    assert len(done) == 10 * SLICE
