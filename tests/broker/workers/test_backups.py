"""Backups of a broker with several workers: one directory has the stores of all."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner

import ferrymq
from ferrymq_broker.cli.app import make_app
from ferrymq_broker.server.storage import Storage
from ferrymq_broker.server.worker_backups import SharedStorage
from ferrymq_broker.server.workers.peers import Peers
from ferrymq_broker.store.backup_target import BackupTarget
from tests.broker.workers.pages import TENANT, WORKERS, fetch, read
from tests.raw.process import PATIENCE, Broker

HOSTS = ("vhost:default", "vhost:tenant")


def config(store: Path) -> str:
    return f"""{WORKERS}
[[listener]]
url = "amqp://127.0.0.1:0"
[store]
path = "{store}"
[[queue]]
name = "q"
{TENANT}
[[virtual-host.queue]]
name = "q"
"""


def back_up(broker: Broker, target: Path) -> dict[str, Any]:
    """Make a backup; return its state at the end."""
    url = f"{broker.monitoring}/management/v1/store/store"
    status, text = fetch(f"{url}/backup", "POST", {"target": str(target)})
    assert status == 200, text
    deadline = time.monotonic() + PATIENCE
    while True:
        state: dict[str, Any] = read(url)["backup"]
        if state["state"] != "running":
            return state
        assert time.monotonic() < deadline, state


async def bodies(broker: Broker, hostname: str) -> list[object]:
    async with ferrymq.connect(broker.url, hostname=hostname) as connection:
        receiver = await connection.receiver("q")
        async with await receiver.receive(timeout=PATIENCE) as delivery:
            return [delivery.message.body]


async def test_a_backup_is_a_store_of_all_workers(tmp_path: Path) -> None:
    with Broker(config(tmp_path / "data")) as broker:
        for hostname in HOSTS:
            async with ferrymq.connect(broker.url, hostname=hostname) as connection:
                sender = await connection.sender("q")
                await sender.send(ferrymq.Message(body=hostname, durable=True))
        state = back_up(broker, tmp_path / "copy")
        assert state["state"] == "done", state
        workers = [(each["worker"], each["state"]) for each in state["workers"]]
        assert workers == [(0, "done"), (1, "done")]
        assert state["bytes"] == sum(each["bytes"] for each in state["workers"]) > 0
        # A directory with a backup is not used for another one.
        url = f"{broker.monitoring}/management/v1/store/store/backup"
        status, text = fetch(url, "POST", {"target": str(tmp_path / "copy")})
        assert status == 409 and "not empty" in text
    names = {file.name for file in (tmp_path / "copy").iterdir()}
    assert {"workers.json", "worker-1", "format"} <= names
    assert "unfinished-backup" not in names
    with Broker(config(tmp_path / "copy")) as restored:
        for hostname in HOSTS:
            assert await bodies(restored, hostname) == [hostname]
    # A command for one directory says that it is not all.
    done = CliRunner().invoke(make_app(), ["store", "verify", str(tmp_path / "copy")])
    assert done.exit_code == 0
    assert done.stderr.count("only the store of worker 0, not worker-1") == 1


def test_a_backup_that_one_worker_cannot_make_is_none(tmp_path: Path) -> None:
    target = tmp_path / "copy"
    with Broker(config(tmp_path / "data")) as broker:
        # What the journal of worker 1 needs is missing, when it has opened its store already.
        (tmp_path / "data" / "worker-1" / "format").unlink()
        state = back_up(broker, target)
        assert state["state"] == "failed"
        assert state["reason"].startswith("worker 1: ")
        assert not target.exists() or not any(target.iterdir())
        broker.kill()


async def test_a_worker_that_is_late_begins_no_backup_that_was_given_up(tmp_path: Path) -> None:
    peers = Peers({})
    SharedStorage(cast(Storage, None), tmp_path, peers)
    target = tmp_path / "copy" / "worker-1"
    assert (
        await peers.answerers["backup"](json.dumps(str(target)).encode()) == b"the backup is over"
    )
    assert not target.parent.exists()


def test_a_killed_backup_is_begun_again_and_other_directories_stay(tmp_path: Path) -> None:
    target = tmp_path / "copy"
    BackupTarget(target).begin()
    (target / "worker-1").mkdir()
    (target / "worker-1" / "format").touch()
    (target / "data.mdb").touch()
    directory = BackupTarget(target)
    directory.require_free()
    directory.begin()
    assert [file.name for file in target.iterdir()] == ["unfinished-backup"]
    (target / "of-somebody").mkdir()
    with pytest.raises(OSError):
        BackupTarget(target).begin()
    assert (target / "of-somebody").is_dir()
