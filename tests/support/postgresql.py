"""Real PostgreSQL for tests: a primary and its synchronous standby on loopback.

    with PostgresqlPair() as database:
        connect(database.url())

The pair has a temporary folder and starts in about two seconds, so one is for a whole module or
session; clusters of ferrymq have names of their own in it. Where PostgreSQL is missing,
`PostgresqlPair` skips the test with the reason; with CI=true it fails instead.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final, Self

import pytest

# The name by which the primary knows its standby.
STANDBY: Final = "standby"
# A role that has no rights but those that it is given, and one that logs in with a password.
ROLE: Final = "broker"
PASSWORD_ROLE: Final = "known"
PASSWORD: Final = "open-sesame"

_SETTINGS: Final = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
shared_buffers = 32MB
wal_level = replica
min_wal_size = 32MB
max_wal_size = 512MB
wal_receiver_status_interval = 1s
wal_retrieve_retry_interval = 50ms
autovacuum = on
log_line_prefix = '%m [%p] '
"""
_ACCESS: Final = f"""
host all {PASSWORD_ROLE} 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
host replication all 127.0.0.1/32 trust
"""
_ROLES: Final = f"""
CREATE ROLE {ROLE} LOGIN;
CREATE ROLE {PASSWORD_ROLE} LOGIN PASSWORD '{PASSWORD}';
"""


def find_programs() -> Path | None:
    """Return the folder with PostgreSQL's programs, the newest; None if there is none."""
    folders = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    found = sorted(folders, key=lambda path: int(path.parts[-3].split(".")[0]))
    if found:
        return found[-1].parent
    other = shutil.which("initdb")
    return Path(other).resolve().parent if other else None


def _require_programs() -> Path:
    programs = find_programs()
    if programs is not None:
        return programs
    reason = "PostgreSQL is not installed: there is no initdb"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def _as_postgres(*command: str | Path) -> list[str]:
    """Return the command as the user postgres runs it: PostgreSQL refuses to run as root. It ends
    when this process ends."""
    how = ["setpriv", "--pdeathsig", "QUIT"]
    if os.geteuid() == 0:
        how += ["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
    return [*how, *map(str, command)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii")
    return [int(word) for word in text.split()]


class PostgresqlServer:
    """One server: its folder, its port, and its process if it runs."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.folder = folder
        self.port = _free_port()
        # Variables for the environment of the server, beside those of this process.
        self.environment: dict[str, str] = {}
        self._programs = programs
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """What the server has logged since it was made."""
        path = self.folder.with_suffix(".log")
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def url(self, user: str = "postgres") -> str:
        """The URL of this server alone."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start, and wait until connections are accepted."""
        assert not self.running
        # What a killed server has left would be taken for the state of this one.
        (self.folder / "postmaster.pid").unlink(missing_ok=True)
        # Set by env: libraries to load are for the server, not for what makes it another user's.
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        program = self._programs / "postgres"
        command = _as_postgres("env", *variables, program, "-D", self.folder, "-p", str(self.port))
        with self.folder.with_suffix(".log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/"
            )
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        state = self.folder / "postmaster.pid"
        until = time.monotonic() + 60
        while True:
            assert self.running, f"PostgreSQL has ended:\n{self.log[-4000:]}"
            lines = state.read_text("ascii").split("\n") if state.exists() else []
            if len(lines) > 7 and lines[7].strip() == "ready":
                return
            assert time.monotonic() < until, f"PostgreSQL does not start:\n{self.log[-4000:]}"
            time.sleep(0.01)

    def kill(self) -> None:
        """Kill the server and its children by SIGKILL, as if its machine had gone."""
        if self._process is None or not self.running:
            return
        # Stopped, it starts no child while they are counted.
        self._process.send_signal(signal.SIGSTOP)
        for pid in _children(self._process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Stop in good order, without waiting for clients."""
        if self._process is not None and self.running:
            # An immediate stop in place of it would recover at the next start.
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()

    def pause(self, title: str = "") -> None:
        """Stop the server and its children in their tracks (SIGSTOP), or only the children that
        have this word in their titles."""
        assert self._process is not None
        if title:
            for pid in _children(self._process.pid):
                with contextlib.suppress(OSError):
                    if title in Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace"):
                        os.kill(pid, signal.SIGSTOP)
        else:
            self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the server and its children go on (SIGCONT)."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        for pid in _children(self._process.pid):
            # A child may have ended meanwhile.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        """Execute SQL as superuser, in no transaction; return the rows."""
        import psycopg

        with psycopg.connect(self.url(), autocommit=True, connect_timeout=10) as connection:
            # Text that a test has made, not a literal.
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []


class PostgresqlPair:
    """A primary and its synchronous standby. `primary` and `standby` are the servers as they are
    now: `promote` exchanges them.

    `fsync` is for measurements: without it a server survives being killed, and not a power cut.
    `where` is the folder for that of the pair, if it is not the usual one.
    """

    def __init__(self, fsync: bool = False, where: Path | None = None) -> None:
        self._programs = _require_programs()
        self._fsync = fsync
        self._root = Path(tempfile.mkdtemp(prefix="ferrymq-postgresql-", dir=where))
        if os.geteuid() == 0:
            shutil.chown(self._root, "postgres", "postgres")
        self.primary = PostgresqlServer(self._programs, self._root / "one")
        self.standby = PostgresqlServer(self._programs, self._root / "two")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def url(self, user: str = "postgres") -> str:
        """The URL with both servers, the primary of now first."""
        hosts = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}"
        return f"postgresql://{user}@{hosts}/postgres"

    def start(self) -> None:
        """Make both servers, start them, and wait until the standby is synchronous."""
        first, second = self.primary.folder, self.standby.folder
        made = ["-D", str(first), "-U", "postgres", "--auth=trust"]
        self._run(
            self._programs / "initdb",
            *made,
            "--no-sync",
            "--no-instructions",
            "-E",
            "UTF8",
            "--locale=C",
        )
        settings = f"{_SETTINGS}fsync = {'on' if self._fsync else 'off'}\n"
        with (first / "postgresql.conf").open("a") as file:
            file.write(settings)
        (first / "pg_hba.conf").write_text(_ACCESS)
        # A copy of a server that has never run is a backup of it, which takes no time.
        self._run("cp", "-a", first, second)
        self._follow(self.standby, self.primary)
        self.primary.start()
        self.primary.execute(_ROLES)
        self.standby.start()
        self.set_synchronous(True)

    def set_synchronous(self, on: bool) -> None:
        """Let commits of the primary wait for the standby or not."""
        names = STANDBY if on else ""
        self.primary.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        self.primary.execute("SELECT pg_reload_conf()")
        if on:
            self.wait_until_synchronous()

    def wait_until_synchronous(self) -> None:
        """Wait until the standby receives what the primary writes, and commits wait for it."""
        wanted = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
        until = time.monotonic() + 60
        while not self.primary.execute(wanted):
            assert time.monotonic() < until, self.standby.log[-4000:]
            time.sleep(0.01)

    def enable_tls(self, certificate: bytes, key: bytes) -> None:
        """Let the primary offer TLS with this certificate and its key, in PEM."""
        for name, content in (("server.crt", certificate), ("server.key", key)):
            path = self.primary.folder / name
            path.touch(0o600)
            path.write_bytes(content)
            if os.geteuid() == 0:
                shutil.chown(path, "postgres", "postgres")
        self.primary.execute("ALTER SYSTEM SET ssl = on")
        self.primary.execute("SELECT pg_reload_conf()")
        until = time.monotonic() + 60
        while self.primary.execute("SHOW ssl") != [("on",)]:
            assert time.monotonic() < until, self.primary.log[-4000:]
            time.sleep(0.01)

    def promote(self) -> None:
        """Make the standby the primary. It waits for no standby until `rejoin`. The old primary,
        which should have been killed before, is `standby` from here on."""
        old, new = self.primary, self.standby
        new.execute("SELECT pg_promote(true, 60)")
        self.primary, self.standby = new, old
        self.set_synchronous(False)

    def rejoin(self) -> None:
        """Make the server `standby`, whatever it was, a new synchronous standby of the primary."""
        self.standby.kill()
        shutil.rmtree(self.standby.folder)
        source = ["-h", "127.0.0.1", "-p", str(self.primary.port), "-U", "postgres"]
        copy: list[str | Path] = [
            "-D",
            self.standby.folder,
            "--checkpoint=fast",
            "--no-sync",
            "-X",
            "stream",
        ]
        self._run(self._programs / "pg_basebackup", *source, *copy)
        self._follow(self.standby, self.primary)
        self.standby.start()
        self.set_synchronous(True)

    def port_for_standby(self, primary: PostgresqlServer) -> int:
        """Return the port at which a standby finds this server; another one leads through a
        proxy."""
        return primary.port

    def close(self) -> None:
        """End both servers and remove their files."""
        self.standby.kill()
        self.primary.kill()
        shutil.rmtree(self._root, ignore_errors=True)

    def _follow(self, standby: PostgresqlServer, primary: PostgresqlServer) -> None:
        port = self.port_for_standby(primary)
        source = f"host=127.0.0.1 port={port} user=postgres application_name={STANDBY}"
        automatic = standby.folder / "postgresql.auto.conf"
        automatic.write_text(f"primary_conninfo = '{source}'\n")
        signal_file = standby.folder / "standby.signal"
        signal_file.touch()
        if os.geteuid() == 0:
            for path in (automatic, signal_file):
                shutil.chown(path, "postgres", "postgres")

    @staticmethod
    def _run(*command: str | Path) -> None:
        subprocess.run(_as_postgres(*command), check=True, capture_output=True, cwd="/")
