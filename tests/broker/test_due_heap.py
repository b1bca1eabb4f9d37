"""Heaps of what is due: their order, and how much one call does."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from ferrymq_broker.deadline_heap import DeadlineHeap
from ferrymq_broker.timers import Timer, TimerHeap

SLACK = 4


def sweep(heap: DeadlineHeap[None], wanted: set[int]) -> None:
    """Sweep as the owner of a heap does: keep what is wanted."""
    head = heap.head()
    if head is not None and head.order not in wanted:
        heap.drop_head()
    for _ in range(2):
        record = heap.sweep()
        if record is not None and record[1] in wanted:
            heap.push(record[0], record[1], record[2])


@given(st.lists(st.tuples(st.sampled_from(["push", "drop", "pop"]), st.integers(0, 50))))
def test_wanted_records_come_out_in_order_whatever_is_swept(steps: list[tuple[str, int]]) -> None:
    heap: DeadlineHeap[None] = DeadlineHeap(SLACK)
    wanted: dict[int, int] = {}
    for number, (step, value) in enumerate(steps):
        if step == "push":
            first = heap.first()
            before = first is None or (value, number) < (first[0], first[1])
            assert heap.push(value, number, None) == before
            wanted[number] = value
        elif step == "drop" and wanted:
            del wanted[sorted(wanted)[value % len(wanted)]]
            heap.outdate()
            sweep(heap, set(wanted))
        elif step == "pop" and wanted:
            first = heap.first()
            while first is not None and first[1] not in wanted:
                heap.pop()
                heap.discount()
                first = heap.first()
            assert first is not None
            assert (first[0], first[1]) == min((due, order) for order, due in wanted.items())
            heap.pop()
            del wanted[first[1]]
    left = []
    while (record := heap.first()) is not None:
        heap.pop()
        left.append(record)
    assert [record for record in left if record[1] in wanted] == sorted(
        (due, order, None) for order, due in wanted.items()
    )
    assert left == sorted(left)


def test_records_in_order_leave_in_order() -> None:
    heap: DeadlineHeap[None] = DeadlineHeap(SLACK)
    live: list[int] = []
    for number in range(10_000):
        heap.push(number // 3, number, None)
        live.append(number)
        if len(live) > 100:
            gone = live.pop(0)
            heap.outdate()
            head = heap.head()
            assert head is not None and head.order == gone
            heap.drop_head()
    assert len(heap) == len(live) == 100
    assert heap.sweep() is None


def test_records_behind_one_that_stays_do_not_pile_up() -> None:
    heap: DeadlineHeap[None] = DeadlineHeap(SLACK)
    heap.push(0, 0, None)
    most = 0
    for number in range(1, 10_000):
        heap.push(number, number, None)
        heap.outdate()
        sweep(heap, {0})
        most = max(most, len(heap))
    assert most <= 4 * SLACK
    first = heap.first()
    assert first is not None and first[1] == 0


def test_records_of_timers_that_are_set_anew_or_cancelled_do_not_pile_up() -> None:
    timers = TimerHeap()
    timed = [Timer() for _ in range(3_000)]
    random.seed(1)
    for _ in range(20):
        for one in timed:
            timers.set(one, random.randrange(1, 1_000_000))
    held = len(timers._heap)
    assert held <= 3 * len(timed) + 2 * 1024
    for one in timed[1:]:
        timers.cancel(one)
    assert len(timers._heap) <= 2 * 1024
    assert timers.next_due() == timed[0].due


def test_no_call_drops_more_than_a_few_records() -> None:
    timers = TimerHeap()
    timed = [Timer() for _ in range(20_000)]
    for one in timed:
        timers.set(one, 1_000)
    most, before = 0, len(timers._heap)
    for one in timed:
        timers.cancel(one)
        most = max(most, before - len(timers._heap))
        before = len(timers._heap)
    assert before <= 2 * 1024
    assert 0 < most <= 4
