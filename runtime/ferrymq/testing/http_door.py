"""An HTTP server on this machine for the clock, the faults and the queues of a broker for tests.

For programs in other languages; everything is JSON. Imported only by the command, because it needs
aiohttp.
"""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import Awaitable, Callable
from datetime import date
from typing import Any, Final

from aiohttp import web

from ferrymq.testing.faults import Faults, InjectedFault
from ferrymq.testing.local_broker import KINDS, LocalBroker, LocalHost

_LOOPBACK: Final = "127.0.0.1"
# The faults, with the names and types of what they take.
_FAULTS: Final[dict[str, dict[str, type | tuple[type, ...]]]] = {
    "drop": {"frame": str, "sent_by": str, "nth": int, "times": int, "deliver": bool},
    "drop-before-outcome": {"nth": int},
    "drop-after-outcome": {"nth": int},
    "delay": {"frame": str, "seconds": (int, float), "nth": int, "times": int},
    "reject": {"address": str, "condition": str, "description": str, "nth": int, "times": int},
    "throttle": {},
    "fill-disk": {},
}

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpDoor:
    """The HTTP server of one broker, on a port of 127.0.0.1; 0 is any free port."""

    def __init__(self, broker: LocalBroker, port: int = 0) -> None:
        self._broker = broker
        self._port = port
        self._faults: dict[int, InjectedFault] = {}
        self._number = 0
        application = web.Application(middlewares=[_as_json])
        routes = application.router
        routes.add_get("/clock", self._read_clock)
        routes.add_post("/clock", self._advance)
        routes.add_get("/faults", self._list_faults)
        routes.add_post("/faults", self._add_fault)
        routes.add_delete("/faults", self._clear_faults)
        routes.add_delete("/faults/{number}", self._cancel_fault)
        routes.add_get("/queues/{address:.+}", self._read_queue)
        routes.add_post("/hosts", self._add_host)
        routes.add_delete("/hosts/{name}", self._remove_host)
        self._runner = web.AppRunner(application, access_log=None, handle_signals=False)

    @property
    def url(self) -> str:
        """The URL, after `start`."""
        return f"http://{_LOOPBACK}:{self._port}"

    async def start(self) -> None:
        """Begin to listen. Raises `OSError` if it cannot."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, _LOOPBACK, self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    # -- the clock -----------------------------------------------------------------------

    async def _read_clock(self, request: web.Request) -> web.Response:
        clock = self._broker.clock
        return web.json_response({"now": clock.now.isoformat(), "advanced": clock.advanced})

    async def _advance(self, request: web.Request) -> web.Response:
        body = await _body(request, {"advance": (int, float)})
        if "advance" not in body:
            raise ValueError("advance: the seconds are missing")
        await asyncio.to_thread(self._broker.clock.advance, body["advance"])
        return await self._read_clock(request)

    # -- faults --------------------------------------------------------------------------

    async def _list_faults(self, request: web.Request) -> web.Response:
        return web.json_response([_fault(*item) for item in self._faults.items()])

    async def _add_fault(self, request: web.Request) -> web.Response:
        body = await request.json()
        name = body.pop("fault", None) if isinstance(body, dict) else None
        if name not in _FAULTS:
            raise ValueError(f"fault: one of {', '.join(_FAULTS)}")
        arguments = _checked(body, _FAULTS[name])
        if name == "delay" and "seconds" not in arguments:
            raise ValueError("seconds: they are missing")
        faults: Faults = self._broker.faults
        begin: Callable[..., InjectedFault] = getattr(faults, name.replace("-", "_"))
        fault = await asyncio.to_thread(begin, **arguments)
        self._number += 1
        self._faults[self._number] = fault
        return web.json_response(_fault(self._number, fault), status=201)

    async def _cancel_fault(self, request: web.Request) -> web.Response:
        number = request.match_info["number"]
        fault = self._faults.pop(int(number), None) if number.isdecimal() else None
        if fault is None:
            raise LookupError(f"there is no fault {number}")
        await asyncio.to_thread(fault.cancel)
        return web.json_response(_fault(int(number), fault))

    async def _clear_faults(self, request: web.Request) -> web.Response:
        await asyncio.to_thread(self._broker.faults.clear)
        self._faults.clear()
        return web.json_response([])

    # -- queues and virtual hosts --------------------------------------------------------

    async def _read_queue(self, request: web.Request) -> web.Response:
        host = self._broker.default_host
        if "host" in request.query:
            host = LocalHost(self._broker, request.query["host"])
        queue = host.queue(request.match_info["address"])
        messages = await asyncio.to_thread(queue.messages)
        counts = dict.fromkeys(("available", "acquired", "scheduled"), 0)
        listed = []
        for each in messages:
            counts[each.state] = counts.get(each.state, 0) + 1
            message = each.message
            listed.append(
                {
                    "sequence": each.sequence,
                    "state": each.state,
                    "failures": each.failures,
                    "message-id": _plain(message.message_id),
                    "subject": message.subject,
                    "application-properties": _plain(message.application_properties),
                    "body": _plain(message.body),
                }
            )
        return web.json_response({"counts": counts, "messages": listed})

    async def _add_host(self, request: web.Request) -> web.Response:
        kinds = {f"{kind}s": list for kind in KINDS}
        body = await _body(request, {"name": str, **kinds}) if request.can_read_body else {}
        host = await asyncio.to_thread(self._broker.add_host, **body)
        answer = {"name": host.name, "hostname": host.hostname, "url": host.url}
        return web.json_response(answer, status=201)

    async def _remove_host(self, request: web.Request) -> web.Response:
        host = LocalHost(self._broker, request.match_info["name"])
        await asyncio.to_thread(self._broker.remove_host, host)
        return web.json_response({"name": host.name})


@web.middleware
async def _as_json(request: web.Request, handler: Answer) -> web.StreamResponse:
    """Refuse requests that a web page could send, and turn errors into answers."""
    host = request.host.rpartition(":")[0] or request.host
    if host not in (_LOOPBACK, "localhost") or "Origin" in request.headers:
        return web.json_response({"error": "this door is for programs on this machine"}, status=403)
    try:
        return await handler(request)
    except LookupError as error:
        return web.json_response({"error": str(error.args[0])}, status=404)
    except (ValueError, TypeError) as error:
        return web.json_response({"error": str(error)}, status=400)


async def _body(request: web.Request, known: dict[str, type | tuple[type, ...]]) -> dict[str, Any]:
    return _checked(await request.json(), known)


def _checked(body: object, known: dict[str, type | tuple[type, ...]]) -> dict[str, Any]:
    """Return a body whose members are known and have their types. Raises ValueError."""
    if not isinstance(body, dict):
        raise ValueError("the body is a JSON object")
    for name, value in body.items():
        kind = known.get(name)
        if kind is None:
            raise ValueError(f"{name}: unknown; there are {', '.join(known) or 'none'}")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"{name}: of the wrong type")
    return body


def _fault(number: int, fault: InjectedFault) -> dict[str, object]:
    return {"number": number, "fault": fault.kind, "fired": fault.fired, "over": fault.over}


def _plain(value: object) -> object:
    """Return a value as JSON can have it. Binary is an object with its base64."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return {"base64": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, uuid.UUID | date):
        return str(value)
    return repr(value)
