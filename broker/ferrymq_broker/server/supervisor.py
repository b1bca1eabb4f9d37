"""The supervisor: starts the workers of a broker, starts those again that end, and stops all.

The supervisor listens, and the workers accept from its sockets. So an address stays in use while a
worker starts again, and clients wait instead of being refused. It has no event loop and no threads,
because a process with threads must not fork.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import mmap
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from ferrymq_broker.config.apply.live_settings import in_force
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.config.load import LoadedConfig
from ferrymq_broker.config.model import Config
from ferrymq_broker.event_log import log
from ferrymq_broker.server.acceptor import bind
from ferrymq_broker.server.listeners import BACKLOG
from ferrymq_broker.server.live_config import Reread
from ferrymq_broker.server.logs import configure_logging, reopen_logs
from ferrymq_broker.server.process import STORE_FAILED, run_broker, tell_service_manager
from ferrymq_broker.server.startup_progress import OnProgress
from ferrymq_broker.server.workers.peers import Peers
from ferrymq_broker.server.workers.placement import config_of, place_hosts
from ferrymq_broker.server.workers.worker import Worker
from ferrymq_broker.store.errors import StoreError

# The most bytes of a report of a worker.
_REPORT: Final = 64 * 1024
# Seconds after which a worker that has ended starts again: at once the first time, later if it ends
# again and again.
_DELAYS: Final = (0.0, 0.5, 1.0, 2.0, 5.0)
# Seconds after which a worker counts as one that does not end again and again.
_STEADY: Final = 30.0
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
_FAILURES: Final[dict[str, type[Exception]]] = {
    "config": ConfigError,
    "store": StoreError,
    "system": OSError,
}


def run_workers(
    config: Config,
    announce: Callable[[str], None],
    on_progress: OnProgress | None = None,
    reread: Reread | None = None,
) -> None:
    """Serve with `workers` processes until SIGTERM or SIGINT. `announce`, `on_progress` and
    `reread` are those of `run_broker`, and so are the errors. A worker that ends while the broker
    runs starts again; the others go on."""
    placed = place_hosts(config)
    if config.workers == 1:
        run_broker(config, announce, on_progress, reread)
        return
    listening = asyncio.run(_listen(config))
    supervisor = _Supervisor(config, placed, listening, announce, on_progress, reread)
    try:
        supervisor.run()
    finally:
        supervisor.close()


async def _listen(config: Config) -> list[list[socket.socket]]:
    found: list[list[socket.socket]] = []
    try:
        for listener in config.listener:
            found.append(await bind(listener.address.host, listener.address.port, BACKLOG))
    except BaseException:
        for sockets in found:
            for each in sockets:
                each.close()
        raise
    return found


class _Process:
    """A worker as the supervisor sees it. `pid` is 0 while it does not run."""

    def __init__(self, number: int, config: Config) -> None:
        self.number = number
        # The configuration that is in force in it, and that with which it was ready last.
        self.config = self.proven = config
        self.pid = 0
        self.reports: socket.socket | None = None
        self.ready = False
        # Whether it has to read the configuration again when it is ready.
        self.reads_again = False
        self.started = 0.0
        # How often it has ended in a row, each time soon after its start; when it starts again.
        self.failures = 0
        self.due: float | None = None


class _Supervisor:
    def __init__(
        self,
        config: Config,
        placed: dict[str, int],
        listening: list[list[socket.socket]],
        announce: Callable[[str], None],
        on_progress: OnProgress | None,
        reread: Reread | None,
    ) -> None:
        self._placed = placed
        self._listening = listening
        self._announce = announce
        self._on_progress = on_progress
        self._reread = reread
        self._processes = [_Process(number, config) for number in range(config.workers)]
        # The sockets that workers share: each worker's, by the number of the other.
        self._shared = _pairs(config.workers)
        # Two numbers of each worker: see `ConnectionLimits`.
        self._connections = memoryview(mmap.mmap(-1, 2 * 8 * config.workers)).cast("q")
        self._selector = selectors.DefaultSelector()
        self._signals, self._wakeup = socket.socketpair()
        self._stopping = False
        # Whether all workers have been ready.
        self._announced = False
        # What a worker has said before it could not start.
        self._failure: Exception | None = None

    # -- the whole run -------------------------------------------------------------------

    def run(self) -> None:
        """Start all workers, and serve until they have ended."""
        with self._handling_signals():
            self._selector.register(self._signals, selectors.EVENT_READ, None)
            for process in self._processes:
                self._start(process)
            while any(process.pid for process in self._processes) or not self._stopping:
                self._wait()
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Close everything that the supervisor has."""
        self._selector.close()
        self._close_listening()
        for sockets in self._shared:
            for each in sockets.values():
                each.close()
        self._signals.close()
        self._wakeup.close()

    @contextlib.contextmanager
    def _handling_signals(self) -> Iterator[None]:
        for each in (self._signals, self._wakeup):
            each.setblocking(False)
        before = signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        handlers = {number: signal.signal(number, _ignore) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(before)

    def _wait(self) -> None:
        """Wait for something to happen, and handle it."""
        dues = [process.due for process in self._processes if process.due is not None]
        timeout = max(0.0, min(dues) - time.monotonic()) if dues else None
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                self._handle_signals()
            else:
                self._read_reports(key.data)
        now = time.monotonic()
        for process in self._processes:
            if process.due is not None and process.due <= now and not self._stopping:
                self._start(process)

    def _handle_signals(self) -> None:
        for number in self._signals.recv(1024):
            if number in (signal.SIGTERM, signal.SIGINT):
                self._stop()
            elif number == signal.SIGHUP:
                reopen_logs()
                self._reload()
        self._reap()

    def _reload(self) -> None:
        """Make the workers read the configuration again."""
        for process in self._processes:
            if process.ready:
                os.kill(process.pid, signal.SIGHUP)
            else:
                process.reads_again = True

    def _follow_reload(self, process: _Process) -> None:
        """Start this worker from now on with the configuration that it has read again and taken."""
        if self._reread is not None:
            before = process.config
            # The worker says what is wrong.
            with contextlib.suppress(ConfigError):
                wanted = self._reread().config
                process.config = in_force(before, wanted, bool(before.personality.name), False)

    def _stop(self) -> None:
        if not self._stopping:
            self._stopping = True
            if self._announced:
                tell_service_manager("STOPPING=1")
            # New clients are refused from now on.
            self._close_listening()
            self._send_all(signal.SIGTERM)
        else:
            # A second signal: do not wait for outcomes.
            self._send_all(signal.SIGUSR1)

    def _send_all(self, number: signal.Signals) -> None:
        for process in self._processes:
            if process.pid:
                os.kill(process.pid, number)

    def _close_listening(self) -> None:
        for sockets in self._listening:
            for each in sockets:
                each.close()

    # -- workers -------------------------------------------------------------------------

    def _start(self, process: _Process) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        process.due = None
        process.ready = False
        process.started = time.monotonic()
        # A signal for the worker must not come while it has the handlers of the supervisor.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (*_SIGNALS, signal.SIGUSR1))
        pid = os.fork()
        if pid == 0:
            ours.close()
            self._run_worker(process.number, theirs, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        process.pid = pid
        process.reports = ours
        self._selector.register(ours, selectors.EVENT_READ, process)

    def _reap(self) -> None:
        for process in self._processes:
            if process.pid:
                pid, status = os.waitpid(process.pid, os.WNOHANG)
                if pid:
                    self._ended(process, os.waitstatus_to_exitcode(status))

    def _ended(self, process: _Process, code: int) -> None:
        self._read_reports(process)
        if process.reports is not None:
            self._selector.unregister(process.reports)
            process.reports.close()
            process.reports = None
        process.pid = 0
        process.ready = False
        self._connections[process.number] = 0
        if self._stopping:
            return
        if not self._announced:
            # The broker cannot start.
            if self._failure is None:
                self._failure = StoreError(f"worker {process.number} has ended: {_reason(code)}")
            self._stop()
            return
        steady = time.monotonic() - process.started > _STEADY
        before = 0 if steady else process.failures
        process.failures = before + 1
        delay = _DELAYS[min(before, len(_DELAYS) - 1)]
        process.due = time.monotonic() + delay
        log.error(
            "a worker has ended, and starts again",
            worker=process.number,
            reason=_reason(code),
            seconds=delay,
        )

    def _read_reports(self, process: _Process) -> None:
        reports = process.reports
        if reports is None:
            return
        while True:
            try:
                data = reports.recv(_REPORT, socket.MSG_DONTWAIT)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data = b""
            if not data:
                # The worker has closed it, so it ends, which a signal tells.
                return
            self._take_report(process, json.loads(data))

    def _take_report(self, process: _Process, report: dict[str, Any]) -> None:
        if "failure" in report:
            if self._announced:
                log.error("a worker cannot start", worker=process.number, reason=report["reason"])
                if report["failure"] == "config":
                    # It starts again with one that worked.
                    process.config = process.proven
            elif self._failure is None:
                kind = _FAILURES[report["failure"]]
                self._failure = kind(f"worker {process.number}: {report['reason']}")
        elif "reloaded" in report:
            self._follow_reload(process)
        elif "progress" in report:
            if self._on_progress is not None and not self._announced:
                self._on_progress(*report["progress"])
        elif report["line"] == "ready":
            process.ready = True
            process.proven = process.config
            if process.reads_again:
                process.reads_again = False
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGHUP)
            if self._announced:
                log.info("a worker is ready again", worker=process.number)
            elif all(each.ready for each in self._processes):
                self._announced = True
                self._announce("ready")
                tell_service_manager("READY=1")
        elif not self._announced and process.number == 0:
            # All have the same listeners.
            self._announce(report["line"])

    # -- in the worker -------------------------------------------------------------------

    def _run_worker(self, number: int, reports: socket.socket, mask: Iterable[int]) -> None:
        """Be the worker, in the process that was forked, with this mask of blocked signals. Does
        not return."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for each in (signal.SIGTERM, signal.SIGCHLD):
                signal.signal(each, signal.SIG_DFL)
            # A terminal sends the first to all processes; the supervisor tells the workers. A
            # worker needs the others when it is ready.
            for each in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
                signal.signal(each, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            code = self._serve(number, reports)
        finally:
            # The frames below belong to the supervisor: they must not be left in the usual way.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _serve(self, number: int, reports: socket.socket) -> int:
        os.environ.pop("NOTIFY_SOCKET", None)
        self._selector.close()
        for other, sockets in enumerate(self._shared):
            if other != number:
                for shared in sockets.values():
                    shared.close()
        for process in self._processes:
            if process.reports is not None:
                process.reports.close()
        config = self._processes[number].config
        configure_logging(config.log, number)
        worker = Worker(
            number,
            self._placed,
            self._listening,
            Peers(self._shared[number]),
            self._connections,
            config.http.url is not None,
        )

        def report(**what: object) -> None:
            with contextlib.suppress(OSError):
                reports.send(json.dumps(what).encode())

        worker.on_reloaded = lambda: report(reloaded=True)

        def read_again() -> LoadedConfig:
            assert self._reread is not None
            loaded = self._reread()
            return loaded._replace(config=config_of(loaded.config, number))

        try:
            run_broker(
                config_of(config, number),
                lambda line: report(line=line),
                lambda what, done, total: report(progress=[what, done, total]),
                None if self._reread is None else read_again,
                worker,
                reports,
            )
        except ConfigError as error:
            report(failure="config", reason=str(error))
        except StoreError as error:
            report(failure="store", reason=str(error))
        except OSError as error:
            report(failure="system", reason=str(error))
        except Exception:
            log.exception("internal error")
        else:
            return 0
        return 1


def _pairs(count: int) -> list[dict[int, socket.socket]]:
    """Return a socket for each worker and each other one, which is connected with that of the
    other."""
    found: list[dict[int, socket.socket]] = [{} for _ in range(count)]
    for one in range(count):
        for other in range(one + 1, count):
            found[one][other], found[other][one] = socket.socketpair(
                socket.AF_UNIX, socket.SOCK_SEQPACKET
            )
    return found


def _reason(code: int) -> str:
    if code < 0:
        return f"signal {signal.Signals(-code).name}"
    if code == STORE_FAILED:
        return "its store has failed"
    return f"status {code}"


def _ignore(number: int, frame: object) -> None:
    """Do nothing: the wake-up descriptor tells the number of the signal."""
