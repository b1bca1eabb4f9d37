"""Which worker serves which virtual host.

A virtual host has everything that belongs together: its nodes, the routes between them, its
transactions. So it is served by one process as a whole, and each worker has a store of its own. A
virtual host with a store has to stay where its messages are, so a file remembers its worker.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.config.model import Config
from ferrymq_broker.store.backup_target import WORKER
from ferrymq_broker.store.format_file import FORMAT_NAME
from ferrymq_broker.values.names import DEFAULT_SPACE

FILE: Final = "workers.json"
"""The file in the directory of the store."""


def place_hosts(config: Config) -> dict[str, int]:
    """Return the number of the worker of each virtual host, and remember it beside the store.

    The default virtual host belongs to worker 0. Others go where the configuration wants them,
    or where they have been; a new one goes to the worker with the fewest. What an existing store
    without the file has belongs to worker 0. Raises `ConfigError` if a virtual host or a store
    belongs to a worker that there is not, or if the file cannot be used.
    """
    path = config.store.path
    known = {} if path is None else _read(path)
    placed = {DEFAULT_SPACE: 0}
    for host in config.virtual_host:
        number = known.get(host.name) if host.worker is None else host.worker
        if number is not None:
            placed[host.name] = number
    for name, number in placed.items():
        if number >= config.workers:
            raise ConfigError(
                f"the virtual host {name!r} is in the store of worker {number}, but with workers ="
                f" {config.workers} the last one is {config.workers - 1}: set workers ="
                f" {number + 1}, or move its store to another worker"
            )
    if path is not None:
        _check_left_over(path, config.workers)
    # A store that has been used without workers.
    is_old = path is not None and not known and (path / FORMAT_NAME).exists()
    for host in config.virtual_host:
        if host.name not in placed:
            numbers = list(placed.values())
            least = min(range(config.workers), key=numbers.count)
            placed[host.name] = 0 if is_old else least
    if path is not None and (config.workers > 1 or known):
        # Those that the configuration does not have at the moment are remembered, too.
        _write(path, {**known, **placed})
    return placed


def _check_left_over(path: Path, count: int) -> None:
    """Raise `ConfigError` if there is the store of a worker that the broker does not have: nobody
    would serve what it contains."""
    for found in sorted(path.glob("worker-*")):
        number = found.name.removeprefix("worker-")
        if number.isdecimal() and int(number) >= count and (found / FORMAT_NAME).exists():
            raise ConfigError(
                f"{found} is the store of worker {number}, but with workers = {count} the last one"
                f" is {count - 1}: set workers = {int(number) + 1}, or move the directory away if"
                " its messages are not needed"
            )


def config_of(config: Config, number: int) -> Config:
    """Return the configuration of one worker: it has a store of its own, and its part of the memory
    and of the disk. Monitoring has only one listener."""
    count = config.workers
    alarms = config.alarms
    part: dict[str, Any] = {"memory": alarms.memory_bytes() // count}
    if isinstance(alarms.low_water, int):
        part["low_water"] = alarms.low_water // count
    store: dict[str, Any] = {}
    path = config.store.path
    if path is not None:
        store["path"] = directory_of(path, number)
    if config.store.max_bytes:
        store["max_bytes"] = max(config.store.max_bytes // count, config.store.least_bytes())
    if isinstance(config.store.page_out, int):
        store["page_out"] = config.store.page_out // count
    changes: dict[str, Any] = {
        "alarms": alarms.model_copy(update=part),
        "store": config.store.model_copy(update=store),
    }
    if number:
        changes["http"] = config.http.model_copy(update={"url": None})
    return config.model_copy(update=changes)


def directory_of(path: Path, number: int) -> Path:
    """Return the directory of a worker's store. That of worker 0 is the one of a broker without
    workers."""
    return path / f"{WORKER}{number}" if number else path


def _read(path: Path) -> dict[str, int]:
    file = path / FILE
    try:
        data = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from None
    try:
        found = json.loads(data)
    except ValueError as error:
        raise ConfigError(f"{file} is damaged: {error}") from None
    if not isinstance(found, dict) or not all(
        isinstance(number, int) and number >= 0 for number in found.values()
    ):
        raise ConfigError(f"{file} is damaged: it must have a worker for each virtual host")
    return found


def _write(path: Path, placed: Mapping[str, int]) -> None:
    """Replace the file, unless it says the same already."""
    file, new = path / FILE, path / f"{FILE}.new"
    text = json.dumps(placed, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if file.exists() and file.read_text("utf-8") == text:
            return
        with new.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(file)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror or error}") from None
