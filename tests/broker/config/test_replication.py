"""``[replication]``: what may be said of it, and that the URL of the database stays a secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ferrymq_broker.config import Config
from ferrymq_broker.config.apply.differences import differences, plain
from ferrymq_broker.config.apply.live_settings import is_live
from tests.broker.config.files import complaint, load
from tests.broker.test_process import run

SECRET = "tapioca"
BASE = f"""
[store]
path = "data"
[replication]
engine = "postgresql"
url = "postgresql://ferrymq:{SECRET}@db.example/ferrymq"
"""


def test_without_a_word_nothing_is_replicated(tmp_path: Path) -> None:
    assert not load(tmp_path, "").replication.is_on


def test_every_key_is_read(tmp_path: Path) -> None:
    text = (
        BASE + 'cluster = "c"\nname = "a"\nlease = "3s"\n'
        'step-down-after = "30s"\nacknowledge = "both"\nsnapshot-after = "2GiB"\nsnapshots = 3\n'
        'snapshot-directory = "/mnt"\nkeep-journal = "1d"\n'
    )
    told = load(tmp_path, text).replication
    assert told.url is not None and SECRET in told.url.get_secret_value()
    assert (told.cluster, told.name) == ("c", "a")
    assert (told.lease, told.step_down_after, told.keep_journal) == (3000, 30_000, 86_400_000)
    assert (told.acknowledge, told.snapshots, told.snapshot_after) == ("both", 3, 2 * 2**30)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[replication]\nlease = 3\n", 'nothing is replicated: set engine = "postgresql"'),
        ('[replication]\nengine = "postgresql"\n', "the database is missing"),
        (BASE.replace('[store]\npath = "data"', ""), "keeps its records in a store"),
        (BASE + "lease = 0.5\n", "replication.lease"),
        (BASE + 'lease = "90s"\n', "step-down-after is shorter than lease"),
        (BASE + 'name = ""\n', "a name has 1 to 200 bytes"),
        ('advertise = "ws://a"\n', "is written amqp://HOST:PORT or amqps://HOST:PORT"),
        ('advertise = "amqp://u:p@a"\n', "takes no user"),
        ('advertise = "amqp://a/b"\n', "nothing may follow the port"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, expected: str) -> None:
    found = complaint(tmp_path, text)
    assert expected in found
    assert SECRET not in found


def test_the_url_is_never_shown(tmp_path: Path) -> None:
    config = load(tmp_path, BASE)
    path = str(tmp_path / "ferrymq.toml")
    printed = run("check-config", path).stdout
    assert "of the cluster ferrymq" in printed
    told = run("check-config", path, "--json").stdout
    assert json.loads(told)["replication"]["cluster"] == "ferrymq"
    assert SECRET not in printed + told + str(plain(config)) + repr(config)
    found = differences(Config(), config)
    assert SECRET not in str([each.attributes() for each in found])


def test_it_needs_a_restart() -> None:
    assert not is_live(("replication", "lease"), False, False)
