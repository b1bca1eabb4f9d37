"""Processes of `ferrymq` that start in milliseconds: forks of one that has loaded the modules.

    with FerrymqProcess(["serve", "--listen", url], stdout=subprocess.PIPE) as process: ...

`FerrymqProcess` is a `subprocess.Popen` of ``python -m ferrymq_broker ARGUMENTS`` with the same
options. Importing the modules takes half a second of a processor; here it happens once in a process
of pytest and not at every start. What runs in the fork is the command line as it is.

How: `python -m tests.support.forking FD`, the fork server, imports the modules and waits for
requests on the socket FD: to fork, and to say how a fork has ended. Away from Linux, and where the
environment has something that takes effect only while Python starts, the process is started as any
other. A fork inherits limits, control groups and the umask from the fork server, not from a test
that has changed its own: such a test asks for a process that is `started`.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

ROOT: Final = Path(__file__).resolve().parents[2]
COMMAND: Final = (sys.executable, "-m", "ferrymq_broker")

# The one variable for Python that a fork can observe.
_UNBUFFERED: Final = "PYTHONUNBUFFERED"


class FerrymqProcess(subprocess.Popen[Any]):
    """A process of `ferrymq`: a fork where possible, unless it is to be `started` as users do it.

    See `subprocess.Popen` for the options.
    """

    _fork_server: ForkServer | None = None

    def __init__(self, arguments: Sequence[str], started: bool = False, **options: Any) -> None:
        self._started = started
        super().__init__([*COMMAND, *arguments], **options)

    def _execute_child(self, args: Any, *rest: Any) -> None:
        # The order is that of `Popen.__init__`, which has opened the pipes before.
        _, preexec, _, pass_fds, cwd, env, *_ = rest
        pipes = rest[9:15]
        if preexec is None and not pass_fds and not self._started:
            self._fork_server = _find_fork_server(env)
        if self._fork_server is None:
            super()._execute_child(args, *rest)  # type: ignore[misc]
            return
        theirs = (pipes[0], pipes[3], pipes[5])
        files = [number if file == -1 else file for number, file in enumerate(theirs)]
        self.pid = self._fork_server.fork(args[len(COMMAND) :], files, cwd, env)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _internal_poll(self, *arguments: Any, **named: Any) -> int | None:
        if self._fork_server is None:
            return super()._internal_poll(*arguments, **named)  # type: ignore[misc,no-any-return]
        if self.returncode is None and self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if self._fork_server is None:
            return super()._try_wait(flags)  # type: ignore[misc,no-any-return]
        if flags == 0:
            ended = os.pidfd_open(self.pid)
            select.select([ended], [], [])
            os.close(ended)
        status = self._fork_server.status(self.pid)
        return (0, 0) if status is None else (self.pid, status)


class ForkServer:
    """The fork server of this process, as a client of it."""

    def __init__(self) -> None:
        self._environment = dict(os.environ)
        self._control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.forking", str(other.fileno())],
                cwd=ROOT,
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._lock = threading.Lock()
        if self._control.recv(64) != b"loaded":
            raise RuntimeError("the modules of the broker cannot be loaded")
        atexit.register(self.close)

    def suits(self, environment: dict[str, str] | None) -> bool:
        """Whether Python would start here as it would with this environment."""
        wanted = os.environ if environment is None else environment
        return _of_python(wanted) == _of_python(self._environment)

    def fork(
        self, arguments: list[str], files: list[int], cwd: object, env: dict[str, str] | None
    ) -> int:
        """Fork a process with these arguments and files for 0, 1 and 2; its number."""
        request = {
            "arguments": [os.fspath(argument) for argument in arguments],
            "cwd": os.fspath(cwd) if cwd is not None else os.getcwd(),  # type: ignore[call-overload]
            "environment": dict(os.environ if env is None else env),
        }
        # In a file of memory: arguments may be longer than a message on a socket.
        with self._lock, open(os.memfd_create("request"), "w+", encoding="utf-8") as memory:
            json.dump(request, memory)
            memory.flush()
            socket.send_fds(self._control, [b"{}"], [memory.fileno(), *files])
            pid: int = json.loads(self._control.recv(64))
        return pid

    def status(self, pid: int) -> int | None:
        """How a fork has ended, as `os.waitpid` says it; None while it runs. Asked for once."""
        with self._lock:
            self._control.send(json.dumps({"ended": pid}).encode())
            status: int | None = json.loads(self._control.recv(64))
        return status

    def close(self) -> None:
        """End the process, and every fork that still runs."""
        self._control.close()
        self._process.wait()


@functools.cache
def _fork_server() -> ForkServer:
    return ForkServer()


def _find_fork_server(environment: dict[str, str] | None) -> ForkServer | None:
    """Return what can fork a process with this environment; None if nothing can."""
    if not sys.platform.startswith("linux"):
        return None
    return _fork_server() if _fork_server().suits(environment) else None


def _of_python(environment: dict[str, str] | os._Environ[str]) -> dict[str, str]:
    """What Python itself looks at while it starts."""
    found = {
        name: value
        for name, value in environment.items()
        if name.startswith("PYTHON") and name != _UNBUFFERED and value
    }
    paths = [path for path in found.pop("PYTHONPATH", "").split(os.pathsep) if path]
    found["PYTHONPATH"] = os.pathsep.join(str(Path(path).resolve()) for path in paths)
    return found


# -- the other side -------------------------------------------------------------------------------


def serve(control: socket.socket) -> None:
    """Answer requests until pytest has gone."""
    forks: set[int] = set()
    try:
        while True:
            data, files, _, _ = socket.recv_fds(control, 64, 4)
            if not data:
                return
            request = json.loads(data)
            if "ended" in request:
                pid, status = os.waitpid(request["ended"], os.WNOHANG)
                forks.discard(pid)
                control.send(json.dumps(status if pid else None).encode())
                continue
            pid = os.fork()
            if pid == 0:
                control.close()
                become(*files)
            forks.add(pid)
            for file in files:
                os.close(file)
            control.send(json.dumps(pid).encode())
    finally:
        for pid in forks:
            os.kill(pid, signal.SIGKILL)


def become(memory: int, *files: int) -> NoReturn:
    """Be what `python -m ferrymq_broker` would be; `memory` has the request."""
    with open(memory, encoding="utf-8") as text:
        text.seek(0)
        request = json.load(text)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    unbuffered = bool(os.environ.get(_UNBUFFERED))
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout.reconfigure(line_buffering=os.isatty(1), write_through=unbuffered)
    sys.stderr = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
    from ferrymq_broker.cli import main

    sys.argv = [str(ROOT / "broker/ferrymq_broker/__main__.py"), *request["arguments"]]
    status = 0
    try:
        main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    # As an interpreter ends, but for what is on the stack of this one.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # Nobody reads it, or the command has closed it.
            status = status or 120
    os._exit(status)


if __name__ == "__main__":
    from tests.crash.starter import load

    load()
    # Ctrl-C is for pytest, which ends this process by going.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests = socket.socket(fileno=int(sys.argv[1]))
    requests.send(b"loaded")
    serve(requests)
