"""Everything that fuzzing has found interesting, tried again, and some fresh input beside it."""

from __future__ import annotations

import logging
from random import Random

import pytest

from tests.fuzz import corpus
from tests.fuzz.hypothesis_worker import explore
from tests.fuzz.mutation.frames import mutate_frame, split
from tests.fuzz.mutation.values import mutate_values, parse_all
from tests.fuzz.pool import AMQP, MESSAGES
from tests.fuzz.targets import NAMES, Target, load

# Fresh inputs a target; those that build a broker for each take longer.
_FRESH = 150
_FRESH_OF = {"broker": 60, "management": 60, "configuration": 60}


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """What `load` keeps out of the log, it keeps out of these tests alone."""
    caplog.set_level(logging.CRITICAL + 1, "ferrymq")


@pytest.mark.parametrize("name", NAMES)
def test_what_was_found_once_stays_good(name: str) -> None:
    target = load(name)
    for label, data in corpus.findings(name).items():
        try:
            target.one(data)
        except Exception as error:
            raise AssertionError(f"finding {label} is back") from error


@pytest.mark.parametrize("name", NAMES)
def test_the_corpus(name: str) -> None:
    target = load(name)
    for data in [*target.seeds(), *corpus.kept(name)]:
        try:
            target.one(data)
        except Exception as error:
            raise AssertionError(f"input {data.hex()}") from error


@pytest.mark.parametrize("name", NAMES)
def test_fresh_inputs(name: str) -> None:
    target = load(name)
    inputs = [*target.seeds(), *corpus.kept(name)]
    explore(target, inputs, seed=1, examples=_FRESH_OF.get(name, _FRESH))


def test_a_fault_is_found_and_told_with_its_input() -> None:
    def one(data: bytes) -> None:
        assert b"!" not in data

    target = Target("toy", one, lambda: [b"a"], lambda random, data: data + random.choice([b"!"]))
    with pytest.raises(AssertionError) as found:
        explore(target, [b"a", b"b"], seed=1, examples=20)
    assert found.value.fuzz_input == b"a!"  # type: ignore[attr-defined]


def test_changed_frames_are_frames_and_changed_messages_mostly_values() -> None:
    random = Random(1)
    for _ in range(300):
        frame = mutate_frame(random, random.choice(AMQP))
        assert split(frame) == [frame]
    whole = 0
    for _ in range(300):
        _, rest = parse_all(mutate_values(random, random.choice(MESSAGES)))
        whole += not rest
    assert whole > 200
