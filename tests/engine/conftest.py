"""Scripts for the engine's tests, read to their end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.script import Script


@pytest.fixture
def script() -> Iterator[Callable[..., Script]]:
    """Makes a `Script`; at the end of the test nothing it wrote may be left unread."""
    made: list[Script] = []

    def make(**settings: object) -> Script:
        made.append(Script(**settings))
        return made[-1]

    yield make
    for play in made:
        play.quiet()
