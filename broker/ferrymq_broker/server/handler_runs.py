"""Carrying out requests for handlers: in passes of the broker, by the worker that has to.

A handler is called in a pass of the broker, and its response counts when all changes of the pass
are on disk. If another worker serves the virtual host of a request, the request goes to that
worker, with the identity that the client has proved here, and is carried out there in the same way.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ferrymq_broker.event_log import log
from ferrymq_broker.server.http_handlers import (
    HttpHandlers,
    HttpPart,
    HttpParts,
    HttpRequest,
    HttpResponse,
    HttpSteps,
    ServedElsewhereError,
)
from ferrymq_broker.server.workers.passed_request import (
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
)
from ferrymq_broker.server.workers.peers import Peers, WorkerError
from ferrymq_broker.store.changes import StableCall

if TYPE_CHECKING:
    from ferrymq_broker.broker import Broker

# The question to another worker.
_QUESTION: Final = "http"
# Seconds for another worker to answer a request.
_PATIENCE: Final = 60.0
# How often a request may go from one worker to the next.
_MOST_MOVES: Final = 3


class HandlerRuns:
    """The requests that handlers of a broker carry out. `now` is its clock. `peers` are the other
    workers; None without workers."""

    def __init__(
        self,
        broker: Broker,
        now: Callable[[], float],
        handlers: HttpHandlers,
        peers: Peers | None = None,
    ) -> None:
        self._broker = broker
        self._now = now
        self._handlers = handlers
        self._peers = peers
        if peers is not None:
            peers.answerers[_QUESTION] = self._answer

    async def run(self, space: str, request: HttpRequest) -> HttpResponse:
        """Carry out a request for a virtual host, and return the response when its changes are on
        disk."""
        try:
            for _ in range(_MOST_MOVES):
                worker = self._worker_of(space, request)
                if worker < 0:
                    answer = await self._run_here(space, request)
                else:
                    answer = await self._ask(worker, space, request)
                if isinstance(answer, HttpResponse):
                    return answer
                space = answer
        except WorkerError as error:
            return _unavailable(str(error))
        raise RuntimeError(f"the workers disagree about who serves {space!r}")

    # -- inside --------------------------------------------------------------------------

    def _worker_of(self, space: str, request: HttpRequest) -> int:
        """Return the number of the worker that has to carry out a request; -1 for this one."""
        mounted = self._handlers.find(space, request.path)
        if mounted is None or mounted.everywhere:
            return -1
        return int(self._broker.spaces[space].elsewhere)

    async def _run_here(self, space: str, request: HttpRequest) -> HttpResponse | str:
        """Return the response, or the name of another virtual host, to whose worker the request has
        to go. Raises `WorkerError`."""
        mounted = self._handlers.find(space, request.path)
        if mounted is None:
            return HttpResponse(404)
        try:
            answer = await self._in_pass(partial(mounted.handle, request))
            if isinstance(answer, HttpParts):
                return await self._run_parts(space, answer)
            return await self._finish(answer)
        except ServedElsewhereError as error:
            return error.space

    async def _run_parts(self, space: str, parts: HttpParts) -> HttpResponse:
        """Ask each worker to do its part. Raises `WorkerError` if one cannot."""
        assert self._peers is not None
        first = await self._run_here(space, replace(parts.request, part=HttpPart.FIRST))
        other = replace(parts.request, part=HttpPart.OTHER)
        asked = [self._ask(number, space, other) for number in self._peers.numbers]
        found: list[HttpResponse] = []
        for answer in (first, *await asyncio.gather(*asked)):
            # What all workers do a part of concerns no virtual host of one worker.
            assert isinstance(answer, HttpResponse)
            found.append(answer)
        return await self._finish(await self._in_pass(partial(parts.combine, found)))

    async def _finish(self, answer: HttpResponse | HttpSteps | HttpParts) -> HttpResponse:
        """Do all steps. Other clients are served between them."""
        while not isinstance(answer, HttpResponse):
            assert not isinstance(answer, HttpParts)
            await asyncio.sleep(0)
            answer = await self._in_pass(partial(_step, answer))
        return answer

    async def _in_pass(
        self, work: Callable[[], HttpResponse | HttpSteps | HttpParts]
    ) -> HttpResponse | HttpSteps | HttpParts:
        """Work in a pass of the broker, and wait until its changes are on disk."""
        broker = self._broker
        changes = broker.agenda.changes
        broker.begin_pass(self._now())
        written = asyncio.Event()
        try:
            before = changes.total
            response = work()
            if changes.total != before:
                changes.watch(StableCall(written.set))
            else:
                written.set()
        finally:
            broker.finish_pass()
        await written.wait()
        return response

    # -- workers -------------------------------------------------------------------------

    async def _ask(self, worker: int, space: str, request: HttpRequest) -> HttpResponse | str:
        """Ask another worker to carry out a request. Return its response, or the name of another
        virtual host, to whose worker the request has to go. Raises `WorkerError`."""
        assert self._peers is not None
        try:
            answer = await self._peers.ask(
                worker, _QUESTION, encode_request(space, request), _PATIENCE
            )
        except WorkerError as error:
            log.warning("a request for another worker failed", worker=worker, reason=str(error))
            raise
        return decode_answer(answer)

    async def _answer(self, content: bytes) -> bytes:
        """Carry out a request that another worker has got."""
        space, request = decode_request(content)
        return encode_answer(await self._run_here(space, request))


def _step(steps: HttpSteps) -> HttpResponse | HttpSteps:
    """Do one step; return the response if it was the last one."""
    try:
        next(steps)
    except StopIteration as end:
        response: HttpResponse = end.value
        return response
    return steps


def _unavailable(reason: str) -> HttpResponse:
    """Return the answer while another worker is away, in the words of both APIs (RFC 9457)."""
    body = {
        "status": 503,
        "title": "Service Unavailable",
        "detail": reason,
        "error": "service_unavailable",
        "reason": reason,
    }
    return HttpResponse(
        503, json.dumps(body).encode(), {"Content-Type": "application/problem+json"}
    )
