"""``partitions-on``: what may be said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.config.files import complaint, load

A, B = "amqp://a.example", "amqp://b.example"
STREAM = '[[stream]]\nname = "s"\n'


def test_the_entries_say_how_many_partitions_there_are(tmp_path: Path) -> None:
    text = f'advertise = "{A}"\n{STREAM}partitions-on = ["0-3 {A}", "4 {B},{B}:5673", "5 {A}"]\n'
    told = load(tmp_path, text)
    assert told.advertise == A
    assert told.stream[0].partitions_on[1] == f"4 {B},{B}:5673"


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (["0-3"], "the URL of a broker is written"),
        (["x amqp://a"], "an entry is written NUMBER-NUMBER URL"),
        (["3-0 amqp://a"], "the lower number first"),
        (["0 amqp://a", "0 amqp://b"], "partition 0 has an entry already"),
        (["1 amqp://a"], "partition 0 has no entry"),
        (["0-1024 amqp://a"], "the highest possible partition is 1023"),
        (["0-99999999999 amqp://a"], "the highest possible partition is 1023"),
        (["0 http://a"], "the URL of a broker is written"),
        (["0 amqp://u:secret@a"], "the URL of a broker is written"),
        (["0 amqp://a:x"], "Port"),
    ],
)
def test_mistakes(tmp_path: Path, entries: list[str], expected: str) -> None:
    text = f'advertise = "amqp://a"\n{STREAM}partitions-on = {entries}\n'
    found = complaint(tmp_path, text)
    assert expected in found
    assert "secret" not in found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f'{STREAM}partitions-on = ["0 {A}"]\n', "set advertise to its URL"),
        (
            f'advertise = "{B}"\n{STREAM}partitions-on = ["0 {A}"]\n',
            f"no entry has the URL of this broker, {B}",
        ),
        (
            f'advertise = "{A}"\n{STREAM}partitions = 2\npartitions-on = ["0 {A}"]\n',
            "the entries have 1 partitions, not 2",
        ),
        (
            f'advertise = "{A}"\n[personality]\nname = "rabbitmq"\n{STREAM}'
            f'partitions-on = ["0 {A}"]\n',
            "clients of 'rabbitmq' cannot be sent to other brokers",
        ),
    ],
)
def test_a_broker_has_to_be_among_them(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in complaint(tmp_path, text)
