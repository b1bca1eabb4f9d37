"""Processes of other projects: awaited, ended with what they have started, and only on loopback."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.interop.brokers.process import ForeignProcess, family_of, listening_beyond_loopback

_LISTENING = """
import socket, sys, time
sockets = [socket.create_server((host, 0)) for host in sys.argv[1:]]
print("ready", flush=True)
time.sleep(60)
"""


def _start(process: ForeignProcess, folder: Path, *command: str) -> None:
    process.start([sys.executable, "-c", *command], os.environ, folder)


def test_listening_for_strangers_is_found(tmp_path: Path) -> None:
    process = ForeignProcess("ready")
    _start(process, tmp_path, _LISTENING, "127.0.0.1")
    try:
        assert listening_beyond_loopback(process.pid) == []
    finally:
        process.kill()
    # This address is of loopback too, but not the one that is allowed: nobody else can reach it.
    _start(process, tmp_path, _LISTENING, "127.0.0.1", "127.0.0.9")
    try:
        assert [place.partition(":")[0] for place in listening_beyond_loopback(process.pid)] == [
            "0900007F"
        ]
    finally:
        process.kill()


def test_children_end_too(tmp_path: Path) -> None:
    process = ForeignProcess("ready")
    forking = (
        "import os, time; os.fork() or os.setsid(); print('ready', flush=True); time.sleep(60)"
    )
    _start(process, tmp_path, forking)
    family = family_of(process.pid)
    assert len(family) == 2
    process.kill()
    assert not [pid for pid in family if family_of(pid)]


def test_what_it_printed_is_told_when_it_does_not_become_ready(tmp_path: Path) -> None:
    process = ForeignProcess("ready")
    with pytest.raises(AssertionError, match="it is broken"):
        _start(process, tmp_path, "print('it is broken')")
    assert not process.running
