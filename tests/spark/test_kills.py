"""A query on a cluster, whose processes are killed: each acknowledged record is copied once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.kills.campaign import run
from tests.spark.kills.copy_ledger import CopiedRecord, Judgement, SentRecords
from tests.spark.kills.victims import VICTIMS

# `make kills` does more.
KILLS = 40


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_each_record_once(tmp_path: Path) -> None:
    report = run(tmp_path, seed=1, kills=KILLS, victims=tuple(VICTIMS))
    assert report.violations == {}, report.describe()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_without_fences_records_come_twice(tmp_path: Path) -> None:
    """Negative control: a batch that is half written is repeated."""
    report = run(tmp_path, seed=1, kills=1, victims=["driver-within-batch"], without="fences")
    assert report.violations["twice"] > 0, report.describe()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_offsets_without_brokers_are_noticed(tmp_path: Path) -> None:
    """Negative control: the checkpoint has the position in one of the two brokers."""
    report = run(tmp_path, seed=1, kills=1, victims=["driver"], without="brokers")
    assert report.violations.keys() & {"twice", "lost", "ended"}, report.describe()


# -- the ledger --------------------------------------------------------------------------------


def sent(*keys: int) -> SentRecords:
    """Records of the producer "p" with these keys, of which the last has no outcome."""
    records = SentRecords("p")
    for key in keys:
        records.add(key)
    for number in range(len(keys) - 1):
        records.acknowledge(number)
    return records


def judged(*copies: str, keys: tuple[int, ...] = (1, 2, 1, 1)) -> dict[str, int]:
    """Violations of copies, each "NUMBER PLACE"."""
    found = [CopiedRecord(f"p {one.split()[0]}".encode(), one.split()[1]) for one in copies]
    return dict(Judgement([sent(*keys)], found).violations)


@pytest.mark.parametrize("last", [(), ("3 a",)])
def test_a_record_without_an_outcome_may_be_there_or_not(last: tuple[str, ...]) -> None:
    assert judged("0 a", "2 a", "1 b", *last) == {}


def test_what_the_ledger_finds() -> None:
    assert judged("0 a", "2 a") == {"lost": 1}
    assert judged("0 a", "2 a", "1 b", "0 a") == {"twice": 1}
    assert judged("0 a", "2 a", "1 b", "3 a", "3 a") == {"twice": 1}
    assert judged("2 a", "0 a", "1 b") == {"order": 1}
    assert judged("0 a", "2 b", "1 b") == {"moved": 1}
    assert judged("0 a", "2 a", "1 b", "4 a") == {"foreign": 1}


def test_examples_of_a_violation() -> None:
    judgement = Judgement([sent(1, 1)], [])
    assert judgement.examples == {"lost": ["b'p 0'"]}
