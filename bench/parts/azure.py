"""The start and the memory of a broker with the personality for Azure's clients.

The vendor's emulator publishes its limits, and no figures of speed: there is nothing to measure
beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from bench.client import Peer
from bench.machine import NOW, memory_of, versions
from bench.parts.memory import KIB, MIB, allow_files
from bench.process import Server, broker
from bench.results import Figure, Report
from bench.rows import spaced
from bench.tree import Trees
from ferrymq.engine.receiver import ReceiverLink

STARTS: Final = 9
ENTITIES: Final = 10_000
CONNECTIONS: Final = 1_000
# Seconds from the start of the process until it is ready.
DEMAND_START: Final = 0.5
_SECONDS: Final = "s"


def measure(trees: Trees, folder: Path, starts: int = STARTS, shrink: int = 1) -> Report:
    """Measure starts, `starts` times each, and memory; entities and connections are `shrink` times
    fewer. The configurations are written to `folder`."""
    allow_files()
    report = Report("azure", options={"starts": starts})
    plain = _configured(folder, "plain", "")
    azure = _configured(folder, "azure", _PERSONALITY)
    many = ENTITIES // shrink
    (folder / "Config.json").write_text(json.dumps(_emulator_config(many)), "utf-8")
    declared = _configured(folder, "declared", f'{_PERSONALITY}config = "Config.json"\n')
    for case, config, demand in (
        ("ready, without a personality", plain, None),
        ("ready, with the personality", azure, DEMAND_START),
        (f"ready, with {spaced(many)} queues of a Config.json", declared, None),
    ):
        seconds = []
        for _ in range(starts):
            with broker(trees, config) as server:
                seconds.append(server.seconds_to_ready)
        report.figures.append(Figure(case, "ferrymq", _SECONDS, seconds, demand))
    for case, config in (
        ("memory after the start, with the personality", azure),
        (f"memory with {spaced(many)} queues of a Config.json", declared),
    ):
        with broker(trees, config) as server:
            report.figures.append(Figure(case, "ferrymq", MIB, [_memory(server) / 2**20]))
    with broker(trees, azure) as server:
        report.figures.append(_connections(server, CONNECTIONS // shrink))
    report.build = {"broker": trees.broker_variant(), **versions()}
    return report


_PERSONALITY: Final = '[personality]\nname = "azure"\n'
_LIMITS: Final = (
    "[limits]\nconnections = 0\nconnections-per-address = 0\nconnections-per-user = 0\n"
)


def _configured(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(f"{_LIMITS}{text}", "utf-8")
    return path


def _emulator_config(queues: int) -> dict[str, object]:
    return {
        "UserConfig": {
            "Namespaces": [
                {
                    "Name": "sbemulatorns",
                    "Queues": [
                        {"Name": f"queue-{number}", "Properties": {"LockDuration": "PT1M"}}
                        for number in range(queues)
                    ],
                    "Topics": [],
                }
            ],
            "Logging": {"Type": "File"},
        }
    }


def _memory(server: Server) -> int:
    found = memory_of(server.pid, NOW)
    if found is None:
        raise OSError("this system does not report the memory of a process")
    return found


def _connections(server: Server, count: int) -> Figure:
    """Hold `count` connections that each have the links of a client for `$cbs` and a receiver."""
    with _held(server, 1):
        before = _memory(server)
    with _held(server, count):
        occupied = _memory(server) - before
    case = f"a connection with a receiver and the links for tokens; there are {spaced(count)}"
    return Figure(case, "ferrymq", KIB, [occupied / count / 1024])


def _usable(links: tuple[ReceiverLink, ...]) -> bool:
    return all(link.usable for link in links)


@contextmanager
def _held(server: Server, count: int) -> Iterator[None]:
    peers: list[Peer] = []
    for number in range(count):
        peer = Peer(server.port, f"client-{number}")
        session = peer.session()
        token = peer.sender(session, "$cbs")
        answers = peer.receiver(session, "$cbs")
        receiver = peer.receiver(session, "orders")
        peer.supplied([token])
        peer.until(partial(_usable, (answers, receiver)))
        peers.append(peer)
    yield
    for peer in peers:
        peer.close()
