"""Streams that are copied in chunks, and held for it, by a broker that dies again and again."""

from __future__ import annotations

import pytest

from tests.simulation.stream_world import StreamWorld
from tests.simulation.world import Wrong


def test_a_copy_misses_nothing() -> None:
    saved = 0
    for seed in range(8):
        world = StreamWorld(seed)
        world.run()
        assert len(world.copied) >= len(world.accepted) > 0
        saved = max(saved, world.saved)
    # Limits would have let that go.
    assert saved > 0


def test_a_disk_that_does_not_sync_is_found_out() -> None:
    """The negative control: what proves nothing cannot fail."""
    wrong = 0
    for seed in range(12):
        try:
            StreamWorld(seed, unsafe=True).run()
        except Exception:
            wrong += 1
    assert wrong >= 2


def test_faults_are_told() -> None:
    world = StreamWorld(1)
    world.run()
    world.accepted.add("never copied")
    with pytest.raises(Wrong, match=r"accepted and not copied.*never copied"):
        world.check()
