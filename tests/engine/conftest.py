"""Scripts for the engine's tests, read to their end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ferrymq.engine.session import Session
from tests.support.scenes import begin_script, open_script
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


@pytest.fixture
def play(script: Callable[..., Script]) -> Script:
    """A script that has exchanged its opens; a module may open it in another way."""
    return open_script(script())


@pytest.fixture
def session(play: Script) -> Session:
    """A session that has begun."""
    return begin_script(play)
