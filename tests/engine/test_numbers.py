"""Handles and channels: the lowest free number, however many are taken."""

from __future__ import annotations

from random import Random

from ferrymq.engine.numbers import FreeNumbers


def test_the_lowest_is_given_and_can_be_given_back() -> None:
    numbers = FreeNumbers()
    random = Random(1)
    taken: set[int] = set()
    for _ in range(2000):
        if taken and random.random() < 0.45:
            number = random.choice(sorted(taken))
            taken.remove(number)
            numbers.give_back(number)
            continue
        number = int(numbers.next(5000))
        assert number == min(set(range(len(taken) + 1)) - taken)
        numbers.take(number)
        taken.add(number)
    numbers.clear()
    assert numbers.next(0) == 0
    numbers.take(0)
    assert numbers.next(0) == -1
