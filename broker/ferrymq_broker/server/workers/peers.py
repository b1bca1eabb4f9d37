"""The other workers of a broker: connections are passed to them, and questions asked.

Each two workers share a pair of sockets from before their start, and a worker that has to start
again gets the same ones. So what comes for it meanwhile waits in the kernel. A message between them
is one byte, which says what it is, and file descriptors: those of the client's socket and of its
description in memory, or that of a socket for a question and its answer. Linux has what this needs.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from ferrymq_broker.event_log import log
from ferrymq_broker.server.workers.passed_connection import PassedConnection

_CONNECTION: Final = b"c"
_QUESTION: Final = b"q"
# Messages that are read in a row, before connections are served.
_BATCH: Final = 64
_ANSWERED: Final = b"+"
_FAILED: Final = b"-"

Answerer = Callable[[bytes], Awaitable[bytes]]
"""Answers a question. Raises `WorkerError` with the reason why it cannot."""


class WorkerError(Exception):
    """Another worker does not answer, or says why it cannot."""


class Peers:
    """The other workers, by their numbers. `sockets` are those that this worker shares with them.

    `on_connection` is called with a connection that is passed to this worker, and its socket;
    `on_lost` is called when such a connection is lost on the way.
    `answerers` answer the questions of others, by the name of the question.
    """

    def __init__(self, sockets: Mapping[int, socket.socket]) -> None:
        self._sockets = dict(sockets)
        self.on_connection: Callable[[PassedConnection, socket.socket], object] = _close
        self.on_lost: Callable[[], object] = lambda: None
        self.answerers: dict[str, Answerer] = {}
        # Keeps the tasks of answers alive.
        self._answering: set[asyncio.Task[None]] = set()

    @property
    def numbers(self) -> list[int]:
        """The numbers of the other workers."""
        return sorted(self._sockets)

    def start(self) -> None:
        """Listen to the others."""
        loop = asyncio.get_running_loop()
        for number, shared in self._sockets.items():
            shared.setblocking(False)
            loop.add_reader(shared, self._read, number, shared)

    def close(self) -> None:
        """Stop listening to the others."""
        loop = asyncio.get_running_loop()
        for shared in self._sockets.values():
            loop.remove_reader(shared)
        for task in self._answering:
            task.cancel()

    def pass_connection(self, number: int, passed: PassedConnection, client: socket.socket) -> None:
        """Pass a connection to another worker. The caller closes its own descriptor afterwards.
        Raises `OSError` if the other worker has too much to read, or there is no descriptor."""
        memory = os.memfd_create("connection")
        try:
            with open(memory, "wb", closefd=False) as file:
                file.write(passed.encode())
            descriptors = [memory, client.fileno()]
            socket.send_fds(self._sockets[number], [_CONNECTION], descriptors)
        finally:
            os.close(memory)

    async def ask(self, number: int, question: str, content: bytes, timeout: float) -> bytes:
        """Ask another worker, and return its answer. Raises `WorkerError`, also after `timeout`
        seconds."""
        try:
            ours, theirs = socket.socketpair()
            try:
                socket.send_fds(self._sockets[number], [_QUESTION], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
            finally:
                theirs.close()
            async with asyncio.timeout(timeout):
                answer = await _exchange(ours, question.encode() + b"\n" + content)
        except TimeoutError:
            raise WorkerError(f"worker {number} does not answer") from None
        except OSError as error:
            raise WorkerError(f"worker {number} cannot be asked: {error}") from None
        if answer[:1] != _ANSWERED:
            raise WorkerError(answer[1:].decode() or f"worker {number} does not answer")
        return answer[1:]

    async def ask_all(
        self, question: str, content: bytes, timeout: float
    ) -> dict[int, bytes | WorkerError]:
        """Ask all others at once. Return their answers by number, or why there is none."""

        async def ask(number: int) -> bytes | WorkerError:
            try:
                return await self.ask(number, question, content, timeout)
            except WorkerError as error:
                return error

        numbers = self.numbers
        answers = await asyncio.gather(*(ask(number) for number in numbers))
        return dict(zip(numbers, answers, strict=True))

    def tell_all(self, question: str) -> None:
        """Ask all others, and do not wait for their answers."""
        for number in self.numbers:
            self._begin(self._tell(number, question))

    # -- inside --------------------------------------------------------------------------

    async def _tell(self, number: int, question: str) -> None:
        try:
            await self.ask(number, question, b"", 60.0)
        except WorkerError as error:
            log.warning("another worker could not be told", what=question, reason=str(error))

    def _begin(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    def _read(self, number: int, shared: socket.socket) -> None:
        for _ in range(_BATCH):
            try:
                kind, ancillary, _, _ = shared.recvmsg(16, socket.CMSG_SPACE(2 * 4))
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                log.error("another worker cannot be heard", worker=number, reason=str(error))
                asyncio.get_running_loop().remove_reader(shared)
                return
            if not kind:
                # All processes that have the other end are gone.
                asyncio.get_running_loop().remove_reader(shared)
                return
            descriptors = _descriptors(ancillary)
            if kind == _CONNECTION and len(descriptors) == 2:
                self._take(descriptors[0], socket.socket(fileno=descriptors[1]))
            elif kind == _QUESTION and len(descriptors) == 1:
                self._begin(self._answer(socket.socket(fileno=descriptors[0])))
            else:
                # The kernel leaves descriptors out if this process has too many.
                log.warning("a connection from another worker is lost", worker=number)
                for descriptor in descriptors:
                    os.close(descriptor)
                if kind == _CONNECTION:
                    self.on_lost()

    def _take(self, memory: int, client: socket.socket) -> None:
        with open(memory, "rb") as file:
            file.seek(0)
            content = file.read()
        self.on_connection(PassedConnection.decode(content), client)

    async def _answer(self, theirs: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=theirs)
        try:
            asked = await reader.read(-1)
            question, _, content = asked.partition(b"\n")
            answerer = self.answerers.get(question.decode())
            try:
                if answerer is None:
                    raise WorkerError(f"there is no answer to {question.decode()!r} yet")
                answer = _ANSWERED + await answerer(content)
            except WorkerError as error:
                answer = _FAILED + str(error).encode()
            except Exception:
                log.exception("internal error")
                answer = _FAILED + b"the worker made a mistake"
            writer.write(answer)
            await writer.drain()
        except OSError:
            # The other worker does not wait any more.
            pass
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def _exchange(ours: socket.socket, content: bytes) -> bytes:
    """Write the content to its end, and return what comes to the end of the answer."""
    reader, writer = await asyncio.open_connection(sock=ours)
    try:
        writer.write(content)
        await writer.drain()
        writer.write_eof()
        return await reader.read(-1)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return list(found)


def _close(passed: PassedConnection, client: socket.socket) -> None:
    """Drop a connection that comes before the worker is ready."""
    client.close()
