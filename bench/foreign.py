"""Peers that are no part of this project, started on loopback for one run: NATS, RabbitMQ, the
example broker of Proton's C++ library, and a relay in C without a protocol.

Everything is in temporary folders, and ends with the run. NATS and the relay have a client in C,
`bench/peers/load_raw.c`, which shapes its load as `bench.load` does: the same messages in flight,
and at most so many in a write.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from bench.loops.tally import Numbered
from bench.loops.transfer import frames
from bench.parts.broker import DURABLE, IN_MEMORY, RELAY, Candidate, Case, LoadFailed
from bench.process import Server, free_port
from bench.tree import ROOT, Trees

_SOURCES: Final = ROOT / "bench" / "peers"
_LIMIT: Final = 300.0
_CORE: Final = tuple(case for case in IN_MEMORY if case.settled)
_STREAM: Final = (*(case for case in IN_MEMORY if not case.settled), DURABLE)


class NotInstalled(Exception):
    """A program that a peer needs is missing; the text says how to get it."""


def compiled(name: str, folder: Path) -> Path:
    """Return a program of `bench/peers`, compiled into the folder. Raises `NotInstalled`."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise NotInstalled(f"bench/peers/{name}.c needs a C compiler: apt-get install gcc")
    program = folder / name
    if not program.exists():
        command = [compiler, "-O2", "-o", str(program), str(_SOURCES / f"{name}.c")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotInstalled(f"bench/peers/{name}.c cannot be compiled: {done.stderr}")
    return program


def _loaded(
    program: Path, modes: Mapping[Case, str], framed: bool = False
) -> Callable[[Candidate, Case, int, int, int], dict[str, Any]]:
    """Return a client that runs `load_raw` with the mode for each case.

    With `framed`, messages have the size of a whole transfer frame.
    """

    def run(to: Candidate, case: Case, count: int, warm_up: int, rate: int) -> dict[str, Any]:
        size = case.size
        if framed:
            size = len(frames(1, Numbered(0, size).message(0)))
        numbers = (count, warm_up, size, case.in_flight)
        command = [str(program), to.url.rpartition(":")[2], *map(str, numbers), modes[case]]
        if rate:
            command.append(str(rate))
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT, check=False)
        if done.returncode:
            raise LoadFailed(done.stderr.strip() or f"exit status {done.returncode}")
        told: dict[str, Any] = json.loads(done.stdout)
        return {**told, "rate": count / told["seconds"]}

    return run


def relay(stack: ExitStack, trees: Trees, folder: Path) -> list[Candidate]:
    """Start the relay, and return it as a candidate. Raises `NotInstalled`."""
    load = compiled("load_raw", folder)
    server = stack.enter_context(Server(RELAY, [str(compiled("relay", folder))], []))
    modes = {case: "relay" if case.settled else "relay-answered" for case in IN_MEMORY}
    url = f"tcp://127.0.0.1:{server.port}"
    run = _loaded(load, modes, framed=True)
    return [Candidate(RELAY, url, server.pid, cases=IN_MEMORY, run=run)]


def nats(stack: ExitStack, trees: Trees, folder: Path) -> list[Candidate]:
    """Start NATS with JetStream, and return both as candidates. Raises `NotInstalled`."""
    from tests.interop.brokers.process import ForeignProcess

    program = shutil.which("nats-server", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        raise NotInstalled("NATS is not installed: apt-get install nats-server")
    load = compiled("load_raw", folder)
    port = free_port()
    config = folder / "nats.conf"
    config.write_text(
        f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder / "nats"}" }}\n', "utf-8"
    )
    process = ForeignProcess(r"Server is ready")
    stack.callback(process.stop)
    process.start([program, "-c", str(config)], os.environ, folder)
    url = f"nats://127.0.0.1:{port}"
    stream = {case: "jetstream-file" if case.durable else "jetstream-memory" for case in _STREAM}
    at_most_once = _loaded(load, dict.fromkeys(_CORE, "nats"))
    return [
        Candidate("NATS", url, process.pid, cases=_CORE, run=at_most_once),
        Candidate("NATS JetStream", url, process.pid, cases=_STREAM, run=_loaded(load, stream)),
    ]


def rabbitmq(stack: ExitStack, trees: Trees, folder: Path) -> list[Candidate]:
    """Start RabbitMQ, and return it as a candidate: a classic queue, through AMQP 1.0. Raises
    `NotInstalled`."""
    # The tests of clients have it, with a name service of its own.
    from tests.interop.brokers.sites import RabbitSite, rabbit_root

    root = rabbit_root("4") or rabbit_root("3")
    if root is None:
        raise NotInstalled("RabbitMQ is not installed: apt-get install rabbitmq-server")
    site = stack.enter_context(RabbitSite("rabbitmq", root, ["bench"], []))
    assert isinstance(site, RabbitSite)
    version = ".".join(site.version.split(".")[:2])
    pid = site.rabbitmq.pid
    url = f"amqp://127.0.0.1:{site.port}"
    return [Candidate(f"RabbitMQ {version}", url, pid, address=site.queue("bench"))]


def proton(stack: ExitStack, trees: Trees, folder: Path) -> list[Candidate]:
    """Start the example broker of Proton's C++ library, and return it as a candidate. Raises
    `NotInstalled`."""
    from tests.interop.brokers import proton_broker

    if reason := proton_broker.missing():
        raise NotInstalled(f"Proton's broker in C++: {reason}")
    process = proton_broker.ProtonBroker()
    stack.callback(process.close)
    process.start()
    url = f"amqp://127.0.0.1:{process.port}"
    return [Candidate(f"Proton {process.version} (C++)", url, process.pid, cases=IN_MEMORY)]


PEERS: Final[dict[str, Callable[[ExitStack, Trees, Path], list[Candidate]]]] = {
    "nats": nats,
    "proton": proton,
    "rabbitmq": rabbitmq,
}
"""The peers that `--with` starts."""


def peers(
    stack: ExitStack,
    trees: Trees,
    folder: Path,
    urls: Sequence[str],
    names: Sequence[str],
    notes: list[str],
) -> list[Candidate]:
    """Return the brokers that are given (see `given`), those of `PEERS` with these names, and the
    relay. Notes say what is missing."""
    candidates = [given(url) for url in urls]
    for start in (relay, *(PEERS[name] for name in names)):
        try:
            candidates += start(stack, trees, folder)
        except NotInstalled as error:
            notes.append(str(error))
    return candidates


def given(text: str) -> Candidate:
    """Return the broker that `--peer NAME=URL` names."""
    name, _, url = text.partition("=")
    parts = urlsplit(url)
    address = unquote(parts.path) or "bench"
    return Candidate(name, f"{parts.scheme}://{parts.netloc}", address=address)
