"""The unsettled deliveries of a session, by delivery-id: they behave as a map does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ferrymq.engine.serial import serial_add, serial_diff
from ferrymq.engine.unsettled import UnsettledDeliveries

# How far the next id is from the latest, and how many deliveries follow it directly.
steps = st.one_of(st.integers(1, 3), st.sampled_from([15, 16, 17, 33, 64, 5000, 1 << 20, -1, -40]))
runs = st.tuples(steps, st.integers(1, 40))
# Which of the deliveries present are settled afterwards: every n-th, from the k-th on.
settled = st.tuples(st.integers(1, 4), st.integers(0, 20))


@given(st.sampled_from([0, 5, 0xFFFFFFF0]), st.lists(st.tuples(runs, settled), max_size=12))
def test_it_behaves_as_a_map(
    first: int, script: list[tuple[tuple[int, int], tuple[int, int]]]
) -> None:
    ring: UnsettledDeliveries[str] = UnsettledDeliveries()
    model: dict[int, str] = {}
    at = first
    for (step, count), (every, start) in script:
        at = serial_add(at, step)
        for _ in range(count):
            if at not in model:
                ring.add(at, f"delivery {at}")
                model[at] = f"delivery {at}"
            at = serial_add(at, 1)
        for id in list(model)[start::every]:
            assert ring.remove(id) == model.pop(id)
            assert ring.remove(id) is None and id not in ring
        assert len(ring) == ring.count == len(model)
        assert dict(ring.items()) == model
        assert sorted(ring.values()) == sorted(model.values())
        assert all(ring.find(id) == delivery for id, delivery in model.items())
        low, high = serial_add(at, -60), serial_add(at, -3)
        between = [id for id in model if 0 <= serial_diff(id, low) <= 57]
        between.sort(key=lambda id: serial_diff(id, low))
        assert ring.between(low, high) == [model[id] for id in between]
        assert ring.between(0, 0xFFFFFFFF) == []
    ring.clear()
    assert not ring and ring.values() == []


def test_one_delivery_that_stays_keeps_no_room_for_those_that_came_after_it() -> None:
    ring: UnsettledDeliveries[str] = UnsettledDeliveries()
    ring.add(0, "stays")
    for id in range(1, 100_000):
        ring.add(id, "comes and goes")
        assert ring.remove(id) == "comes and goes"
    assert ring.items() == [(0, "stays")]
    assert len(ring._slots) == 16
