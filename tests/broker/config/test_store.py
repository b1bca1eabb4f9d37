"""``[store]``: what may be said of it, what goes together, and what `check-config` tells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ferrymq_broker.config import Config
from tests.broker.config.files import complaint, load
from tests.broker.test_process import run

MIB = 1024 * 1024


def test_without_a_word_there_is_none(tmp_path: Path) -> None:
    config = load(tmp_path, "")
    assert config.store.path is None
    assert (config.store.max_bytes, config.store.segment_bytes) == (0, 16 * MIB)


def test_every_key_is_read(tmp_path: Path) -> None:
    text = '[store]\npath = "data"\nmax-bytes = "2GiB"\nsegment-bytes = "8MiB"\npage-out = 1000\n'
    store = load(tmp_path, text).store
    assert store.path == Path("data")
    assert (store.max_bytes, store.segment_bytes) == (2048 * MIB, 8 * MIB)
    assert store.page_out == 1000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[store]\npath = ''", "ferrymq.toml:2: store.path: the path is empty"),
        ("[store]\npath = 'a\\u0000'".replace("'", '"'), "store.path: a path cannot contain NUL"),
        ("[store]\npath = 3", "ferrymq.toml:2: store.path: "),
        ("[store]\npaths = 'x'", "unknown key 'paths'; did you mean 'path'?"),
        ("[store]\nsegment-bytes = '63KiB'", "store.segment-bytes: Input should be greater"),
        ("[store]\nsegment-bytes = '2GiB'", "store.segment-bytes: Input should be less"),
        ("[store]\nmax-bytes = -1", "store.max-bytes: it cannot be negative"),
        (
            "[store]\n\nmax-bytes = '60MiB'",
            "ferrymq.toml:3: store.max-bytes: the journal alone takes 65MiB; allow more, or",
        ),
        ("[store]\npage-out = '120%'", "store.page-out: a share is above 0%"),
        (
            "[alarms]\nmemory = '1MiB'\n[store]\npage-out = '2MiB'",
            "ferrymq.toml:4: store.page-out: the memory alarm would stop producers before",
        ),
    ],
)
def test_mistakes(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in complaint(tmp_path, text)


def test_paging_begins_before_the_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferrymq_broker.config.model.available_memory", lambda: 1000)
    assert Config().page_out_bytes() == 200
    assert Config.model_validate({"alarms": {"memory": 100}}).page_out_bytes() == 50
    without_alarm = {"alarms": {"memory": 0}}
    assert Config.model_validate(without_alarm).page_out_bytes() == 500
    assert Config.model_validate(without_alarm | {"store": {"page-out": 7}}).page_out_bytes() == 7
    assert Config.model_validate({"store": {"page-out": 0}}).page_out_bytes() == 0
    half = {"store": {"page-out": "50%"}}
    assert Config.model_validate(half).page_out_bytes() == 200
    assert Config.model_validate(half | without_alarm).page_out_bytes() == 500
    monkeypatch.setattr("ferrymq_broker.config.model.available_memory", lambda: 1 << 40)
    assert Config().page_out_bytes() == 40 * MIB


def test_check_config_tells_of_it(tmp_path: Path) -> None:
    path = tmp_path / "ferrymq.toml"
    path.write_text(
        "[alarms]\nmemory = '8MiB'\n[store]\npath = '/var/lib/ferrymq'\nmax-bytes = '1GiB'\n"
    )
    printed = run("check-config", str(path)).stdout
    assert "stored in /var/lib/ferrymq, at most 1GiB; paged out above 4MiB of messages" in printed
    told = json.loads(run("check-config", str(path), "--json").stdout)["store"]
    assert told == {
        "path": "/var/lib/ferrymq",
        "max-bytes": 1024 * MIB,
        "segment-bytes": 16 * MIB,
        "page-out": 4 * MIB,
    }
    path.write_text("")
    assert "stored in" not in run("check-config", str(path)).stdout
    assert json.loads(run("check-config", str(path), "--json").stdout)["store"] is None
