"""The Python on the pages of the client runs as it is written, against a running broker."""

from __future__ import annotations

import ast
import asyncio
import inspect
import logging
import re
import shutil
import types
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ferrymq
from ferrymq import Message, blocking
from ferrymq_broker.config import Config
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.server import BrokerServer

pytestmark = [
    pytest.mark.page(
        "client/arrow", "client/asyncio", "client/blocking", "client/chunks", "client/connections",
        "client/exactly-once", "client/messages", "client/transactions",
    )
]  # fmt: skip

PAGES = Path(__file__).parents[2] / "docs" / "client"
CERTIFICATE = Path(__file__).parent / "tls" / "localhost.pem"
# On these, `orders` is a stream.
OF_STREAMS = {"arrow", "chunks"}
# These go on until somebody ends them.
ENDLESS = {"main"}
BLOCKS = [
    pytest.param(page.stem, code, id=f"{page.stem}-{number}")
    for page in sorted(PAGES.glob("*.md"))
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.S))
]


@pytest.fixture
async def broker(request: pytest.FixtureRequest) -> AsyncIterator[BrokerServer]:
    names = ["clicks"]
    if request.node.callspec.params["page"] in OF_STREAMS:
        names.append("orders")
    streams = [{"name": name, "partitions": 3} for name in names]
    listener = {"url": "amqp://127.0.0.1:0"}
    config = {"listener": [listener], "topic": [{"name": "news"}], "stream": streams}
    async with BrokerServer(Config.model_validate(config)) as server:
        yield server


@pytest.fixture
def redirected(monkeypatch: pytest.MonkeyPatch, broker: BrokerServer) -> list[Any]:
    """Connections to localhost go to the broker; what the page gives to `asyncio.run` is kept."""
    started: list[Any] = []

    def to_broker(connect: Callable[..., Any]) -> Callable[..., Any]:
        def connected(url: str = "amqp://localhost", **options: Any) -> Any:
            return connect(url.replace("amqp://localhost", broker.url), **options)

        return connected

    monkeypatch.setattr(ferrymq, "connect", to_broker(ferrymq.connect))
    monkeypatch.setattr(blocking, "connect", to_broker(blocking.connect))
    monkeypatch.setattr(asyncio, "run", started.append)
    return started


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with the files that pages name; what they log is as before afterwards."""
    monkeypatch.chdir(tmp_path)
    for name in ("authority.pem", "client.pem"):
        shutil.copy(CERTIFICATE, tmp_path / name)
    logger = logging.getLogger("ferrymq.frames")
    level = logger.level
    yield tmp_path
    logger.setLevel(level)


async def fill(connection: ferrymq.Connection) -> None:
    """Have something in every node that a page takes messages from."""
    for name in ("orders", "clicks", "receipts"):
        async with connection.sender(name) as sender:
            for number in range(9):
                annotations: dict[str, object] = {"x-opt-partition": number % 3}
                await sender.send(Message(b"%d" % number, message_annotations=annotations))
    async with ferrymq.connect(container_id="billing") as billing:
        news = await billing.receiver("news", name="invoices", durable=True)
        await news.detach()
        await (await billing.sender("news")).send(Message("an invoice"))


async def until_taken(broker: BrokerServer, task: asyncio.Task[None]) -> None:
    """Let a program go on until it has taken all orders, and end it."""
    queue = broker.broker.default.nodes["orders"]
    assert isinstance(queue, Queue)
    while queue.message_count() and not task.done():  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.timeout(60)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(("page", "code"), BLOCKS)
async def test_it_runs(
    page: str, code: str, broker: BrokerServer, redirected: list[Any], folder: Path
) -> None:
    async with asyncio.timeout(30), ferrymq.connect(container_id="me") as connection:
        await fill(connection)
        module = types.ModuleType("page")
        program = compile(code, f"{page}.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
        await asyncio.to_thread(eval, program, vars(module))
        sender = await connection.sender("orders")
        given = {
            "connection": connection,
            "sender": sender,
            "url": broker.url,
            "messages": [Message("one"), Message("two")],
            "count": 1,
            "first": 0,
            "until": 3,
            "end": 3,
            "notes": {b"tag-1": Message("42.00").encode()},
            "done": [],
            "batch": 1,
            "rows": [b"one", b"two"],
        }
        for name, function in list(vars(module).items()):
            if not inspect.iscoroutinefunction(function) or function.__module__ != "page":
                continue
            parameters = inspect.signature(function).parameters
            work = function(**{parameter: given[parameter] for parameter in parameters})
            if name in ENDLESS:
                await until_taken(broker, asyncio.create_task(work))
            else:
                await work
        for coroutine in redirected:
            coroutine.close()
