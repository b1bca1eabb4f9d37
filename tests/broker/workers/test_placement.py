"""Which worker serves which virtual host, and what is remembered beside the store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.config.model import Config
from ferrymq_broker.server.workers.placement import FILE, config_of, directory_of, place_hosts
from ferrymq_broker.store.format_file import FORMAT_NAME
from tests.broker.config.checking import check


def config(workers: int, *hosts: str, path: Path | None = None, **placed: int) -> Config:
    """A configuration with these virtual hosts, of which some name their worker."""
    tables: list[dict[str, Any]] = [
        {"name": name, **({"worker": placed[name]} if name in placed else {})} for name in hosts
    ]
    values: dict[str, Any] = {"workers": workers, "virtual-host": tables}
    if path is not None:
        values["store"] = {"path": str(path)}
    return Config.model_validate(values)


def remembered(path: Path) -> dict[str, int]:
    """What the file says."""
    found: dict[str, int] = json.loads((path / FILE).read_text())
    return found


def has_store(path: Path, worker: int) -> None:
    """Make what looks like the store of a worker."""
    directory = directory_of(path, worker)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / FORMAT_NAME).write_text("a store")


def test_each_goes_to_the_worker_with_the_fewest() -> None:
    assert place_hosts(config(3, "a", "b", "c", "d")) == {
        "default": 0, "a": 1, "b": 2, "c": 0, "d": 1,
    }  # fmt: skip


def test_the_configuration_decides_first() -> None:
    assert place_hosts(config(3, "a", "b", "c", b=1, c=1)) == {
        "default": 0, "a": 2, "b": 1, "c": 1,
    }  # fmt: skip


def test_one_worker_has_all() -> None:
    assert place_hosts(config(1, "a", "b")) == {"default": 0, "a": 0, "b": 0}


def test_one_worker_with_a_store_writes_no_file(tmp_path: Path) -> None:
    place_hosts(config(1, "a", path=tmp_path))
    assert not (tmp_path / FILE).exists()


def test_it_stays_where_it_was(tmp_path: Path) -> None:
    first = place_hosts(config(2, "a", "b", path=tmp_path))
    assert first == {"default": 0, "a": 1, "b": 0} == remembered(tmp_path)
    assert place_hosts(config(3, "b", "c", "a", path=tmp_path)) == {**first, "c": 2}
    # One that the configuration has not had for a while.
    place_hosts(config(3, "b", path=tmp_path))
    assert place_hosts(config(3, "x", "a", path=tmp_path))["a"] == 1
    assert remembered(tmp_path) == {"default": 0, "a": 1, "b": 0, "c": 2, "x": 2}


def test_without_a_store_nothing_is_remembered() -> None:
    assert place_hosts(config(2, "a", "b"))["b"] == 0
    assert place_hosts(config(2, "b", "a"))["b"] == 1


def test_an_old_store_belongs_to_worker_0(tmp_path: Path) -> None:
    has_store(tmp_path, 0)
    assert place_hosts(config(2, "a", "b", path=tmp_path)) == {"default": 0, "a": 0, "b": 0}
    # One that is new later is nowhere yet.
    assert place_hosts(config(2, "a", "b", "c", path=tmp_path))["c"] == 1


def test_fewer_workers_than_remembered(tmp_path: Path) -> None:
    place_hosts(config(3, "a", "b", path=tmp_path))
    with pytest.raises(ConfigError, match=r"'b' is in the store of worker 2.*set workers = 3"):
        place_hosts(config(2, "a", "b", path=tmp_path))
    assert place_hosts(config(2, "a", path=tmp_path)) == {"default": 0, "a": 1}
    with pytest.raises(ConfigError, match=r"'a' is in the store of worker 1.*set workers = 2"):
        place_hosts(config(1, "a", path=tmp_path))


def test_a_store_that_no_worker_would_open(tmp_path: Path) -> None:
    """Its messages must not vanish because the configuration names another worker."""
    place_hosts(config(2, "a", path=tmp_path))
    has_store(tmp_path, 1)
    with pytest.raises(ConfigError, match=r"worker-1 is the store of worker 1.*set workers = 2"):
        place_hosts(config(1, "a", path=tmp_path, a=0))
    assert remembered(tmp_path)["a"] == 1


def test_a_store_may_move_as_a_whole(tmp_path: Path) -> None:
    place_hosts(config(2, "a", path=tmp_path))
    has_store(tmp_path, 1)
    directory_of(tmp_path, 1).rename(directory_of(tmp_path, 2))
    assert place_hosts(config(3, "a", path=tmp_path, a=2))["a"] == 2
    assert place_hosts(config(3, "a", path=tmp_path))["a"] == 2


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": "1"}', '{"a": -1}', "\xff"])
def test_a_damaged_file(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text, "latin-1")
    with pytest.raises(ConfigError, match=r"workers\.json is damaged"):
        place_hosts(config(2, "a", path=tmp_path))


def test_each_worker_has_its_part() -> None:
    values: dict[str, Any] = {
        "workers": 2,
        "alarms": {"memory": "100MiB"},
        "http": {"url": "http://127.0.0.1:0"},
        "store": {"path": "data", "page-out": "10MiB"},
    }
    whole = Config.model_validate(values)
    parts = [config_of(whole, number) for number in (0, 1)]
    assert [each.alarms.memory_bytes() for each in parts] == [50 * 1024 * 1024] * 2
    assert [each.store.page_out for each in parts] == [5 * 1024 * 1024] * 2
    assert [each.store.path for each in parts] == [Path("data"), Path("data/worker-1")]
    assert [each.http.url is None for each in parts] == [False, True]


# -- ferrymq check-config -----------------------------------------------------------------------


def checked(tmp_path: Path, text: str) -> Result:
    """What `ferrymq check-config` does about a file."""
    path = tmp_path / "broker.toml"
    path.write_text(text)
    return check(path)


def test_check_config_accepts_workers(tmp_path: Path) -> None:
    text = 'workers = 2\n[[virtual-host]]\nname = "a"\nworker = 1\n'
    assert checked(tmp_path, text).exit_code == 0


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("workers = 0", 1, "greater than or equal to 1"),
        ("workers = 257", 1, "less than or equal to 256"),
        ('workers = "two"', 1, "workers"),
        ('workers = 2\n[[virtual-host]]\nname = "a"\nworker = 2', 4, "the last worker is 1"),
        ('[[virtual-host]]\nname = "a"\nworker = 1', 3, "the last worker is 0"),
        ('workers = 2\n[[virtual-host]]\nname = "a"\nworker = -1', 4, "worker"),
        (
            'workers = 2\n[replication]\nengine = "postgresql"\ncluster = "c"\n'
            'url = "postgresql://localhost"\n[store]\npath = "data"',
            1,
            "a member of a cluster has one process",
        ),
    ],
)
def test_check_config_names_the_mistake(tmp_path: Path, text: str, line: int, reason: str) -> None:
    error = checked(tmp_path, text + "\n").exception
    assert isinstance(error, ConfigError)
    assert f"broker.toml:{line}:" in str(error) and reason in str(error)
