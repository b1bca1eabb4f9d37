"""A program that tries features with Azure's SDKs for Python, the blocking or the asyncio classes.

    python -m tests.interop.azure.python_client {service-bus,event-hubs} {sync,aio}

`features/trial` says what it reads and writes. It imports nothing of this project but that and the
cases, so that it runs where an older SDK is installed.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tests.interop.features.trial import LIMIT, ask, serve

_ASYNCIO = ("azure.servicebus.aio", "azure.servicebus.aio.management", "azure.eventhub.aio")


class Blocking:
    """A blocking object of an SDK with the methods of its asyncio class, so that a case is written
    once for both: what is a coroutine there runs in a thread here."""

    def __init__(self, inner: Any, twin: type | None) -> None:
        self._inner = inner
        self._twin = twin

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not inspect.ismethod(value):
            return adapted(value)
        if inspect.iscoroutinefunction(getattr(self._twin, name, None)):
            return lambda *args, **more: _in_thread(value, args, more)
        return lambda *args, **more: adapted(value(*_plain(args), **more))

    async def __aenter__(self) -> Blocking:
        await asyncio.to_thread(self._inner.__enter__)
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self._inner.__exit__, *error)

    async def __aiter__(self) -> AsyncIterator[Any]:
        items = iter(self._inner)
        end = object()
        while (item := await asyncio.to_thread(next, items, end)) is not end:
            yield item


async def _in_thread(method: Callable[..., Any], args: Any, more: dict[str, Any]) -> Any:
    loop = asyncio.get_running_loop()
    more = {name: _blocking_callback(value, loop) for name, value in more.items()}
    return adapted(await asyncio.to_thread(method, *_plain(args), **more))


def _plain(args: Any) -> list[Any]:
    return [each._inner if isinstance(each, Blocking) else each for each in args]


def _blocking_callback(value: Any, loop: asyncio.AbstractEventLoop) -> Any:
    """Return a callback that runs a coroutine function in the event loop; other values as given."""
    if not inspect.iscoroutinefunction(value):
        return value

    def call(*args: Any) -> None:
        work = value(*(adapted(each) for each in args))
        asyncio.run_coroutine_threadsafe(work, loop).result(LIMIT)

    return call


def adapted(value: Any) -> Any:
    """Return an object of the SDK as `Blocking` if there is an asyncio class of its name."""
    name = type(value).__name__
    if name == "ItemPaged":
        return Blocking(value, None)
    if type(value).__module__.startswith("azure."):
        for module in _ASYNCIO:
            twin = getattr(sys.modules.get(module), name, None)
            if isinstance(twin, type) and twin is not type(value):
                return Blocking(value, twin)
    return value


@dataclass(frozen=True)
class Trial:
    """Place where a case runs: the connection string, the entity of its own, the flavour."""

    connection: str
    entity: str
    flavour: str
    listen_only: str = ""
    """The connection string of a key that may only receive."""

    authority: str = ""
    """File with the certificate of the broker's authority."""

    endpoint: str = ""
    """URL of a broker with TLS: without it the SDKs connect to their own ports."""

    now: datetime = datetime.min
    """Time of the broker when the case begins."""

    async def advance(self, seconds: float) -> None:
        """Advance the clock of the broker."""
        await asyncio.to_thread(ask, {"advance": seconds})

    def kind(self, module: str, name: str) -> Any:
        """Return a class of the SDK, the blocking one or that for asyncio."""
        aio = importlib.import_module(
            module.replace("servicebus", "servicebus.aio").replace("eventhub", "eventhub.aio")
        )
        return getattr(aio if self.flavour == "aio" else importlib.import_module(module), name)

    def make(self, module: str, name: str, **options: Any) -> Any:
        """Return an object of a class of the SDK, with the methods of the asyncio class."""
        return adapted(self.kind(module, name)(**options))

    def client(self, module: str, name: str, connection: str = "", **options: Any) -> Any:
        """Return a client for the connection string, with the methods of the asyncio class."""
        if self.authority:
            options["connection_verify"] = self.authority
            if not name.endswith("AdministrationClient"):
                options["custom_endpoint_address"] = self.endpoint
        make = self.kind(module, name).from_connection_string
        return adapted(make(connection or self.connection, **options))


async def main() -> None:
    """Run cases until the input ends."""
    family, flavour = sys.argv[1:]
    logging.getLogger("azure").setLevel(logging.CRITICAL)
    modules = {"service-bus": "service_bus_cases", "event-hubs": "event_hub_cases"}
    cases = importlib.import_module(f"tests.interop.azure.{modules[family]}")

    def trial(asked: dict[str, Any]) -> Trial:
        return Trial(
            asked["connection"],
            asked["case"],
            flavour,
            asked.get("listen_only", ""),
            asked.get("authority", ""),
            asked.get("endpoint", ""),
            datetime.fromtimestamp(asked["now"], UTC),
        )

    await serve(cases, trial)


if __name__ == "__main__":
    asyncio.run(main())
