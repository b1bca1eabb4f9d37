"""The Python on the pages, as far as it is a client's, runs as it is written.

The broker of each block is a running one; its address is all that is changed.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import logging
import re
import shutil
import types
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import ferrymq
from ferrymq import Message, blocking
from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer

DOCS = Path(__file__).parents[2] / "docs"
CERTIFICATE = Path(__file__).parent / "tls" / "localhost.pem"
# Its code needs a generated package: `tests/codegen/test_installed.py` runs it.
GENERATED = "own-types"
# Their code is for services: `test_rabbitmq.py` and `test_azure.py` run it.
SERVICES = ("azure", "rabbitmq")
# All other pages of the client, and those of the broker whose code is a client's.
PAGES = [
    f"client/{page.stem}"
    for page in sorted((DOCS / "client").glob("*.md"))
    if page.stem not in (GENERATED, *SERVICES)
] + [
    f"broker/{page}"
    for page in (
        "browsing", "consumers", "dead-letters", "duplicates", "dynamic-nodes", "exactly-once",
        "exchanges", "expiry", "last-value", "limits", "outcomes", "priorities", "scheduling",
        "streams", "termini", "topics", "transactions",
    )
]  # fmt: skip
# On these, `orders` is no queue.
ORDERS = {"client/arrow": "stream", "client/chunks": "stream", "broker/streams": "stream"}
ORDERS["broker/exchanges"] = "exchange"
# These go on until somebody ends them.
ENDLESS = {"main", "watch", "replay", "serve", "own", "print_orders", "print_numbers"}
# These are for services that are not here.
ELSEWHERE = {"put_token"}
BLOCKS = [
    pytest.param(page, code, id=f"{page}-{number}", marks=pytest.mark.page(page))
    for page in PAGES
    for number, code in enumerate(
        re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text("utf-8"), re.S)
    )
]


@pytest.fixture
async def broker(request: pytest.FixtureRequest) -> AsyncIterator[BrokerServer]:
    config: dict[str, Any] = {
        "listener": [{"url": "amqp://127.0.0.1:0"}],
        "topic": [{"name": "news"}],
        "stream": [{"name": "clicks", "partitions": 3}],
    }
    kind = ORDERS.get(request.node.callspec.params["page"], "queue")
    settings: dict[str, Any] = {"name": "orders"}
    if kind == "stream":
        settings["partitions"] = 3
    config.setdefault(kind, []).append(settings)
    if kind == "exchange":
        settings["routing"] = "topic"
        settings["binding"] = [{"to": "european", "key": "eu.*.new"}]
        config["queue"] = [{"name": "european"}]
    async with BrokerServer(Config.model_validate(config)) as server:
        yield server


@pytest.fixture
def redirected(monkeypatch: pytest.MonkeyPatch, broker: BrokerServer) -> list[Any]:
    """Connections to localhost go to the broker; what the page gives to `asyncio.run` is kept."""
    started: list[Any] = []
    ferrymq_connect = ferrymq.connect

    def to_broker(connect: Callable[..., Any]) -> Callable[..., Any]:
        def connected(url: str | list[str] = "amqp://localhost", **options: Any) -> Any:
            if not isinstance(url, str) or "broker.example" in url or "vhost:" in url:
                # There is no such broker: the arguments are checked, and another one is used.
                ferrymq_connect(url, **options).opener()
                return connect(broker.url)
            here = re.sub(r"^amqp://(localhost|127\.0\.0\.1)(?!:)", broker.url, url)
            return connect(here, **options)

        return connected

    monkeypatch.setattr(ferrymq, "connect", to_broker(ferrymq.connect))
    monkeypatch.setattr(blocking, "connect", to_broker(blocking.connect))
    # A worker with a URL connects itself.
    monkeypatch.setattr(ferrymq.aio.worker, "connect", to_broker(ferrymq.aio.worker.connect))
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
    for name in ("orders", "orders.dead", "clicks", "receipts"):
        async with connection.sender(name) as sender:
            for number in range(9):
                annotations: dict[str, object] = {"x-opt-partition": number % 3}
                subject = "eu.fr.new"
                message = Message(number, subject=subject, message_annotations=annotations)
                await sender.send(message)
    async with ferrymq.connect(container_id="billing") as billing:
        news = await billing.receiver("news", name="invoices", durable=True)
        await news.detach()


async def publish_news(connection: ferrymq.Connection) -> None:
    """Give all subscribers something, whenever they come."""
    sender = await connection.sender("news")
    while True:
        await sender.send(Message("news", application_properties={"region": "eu"}))
        await asyncio.sleep(0.01)


async def ask_questions(connection: ferrymq.Connection) -> None:
    """Give all services something, whenever they come."""
    sender = await connection.sender("questions")
    while True:
        await sender.send(Message("how?", message_id=uuid4(), reply_to="receipts"))
        await asyncio.sleep(0.01)


async def answer_questions(connection: ferrymq.Connection) -> None:
    """Answer whatever is asked."""
    relay = await connection.sender(None)
    async for delivery in connection.receiver("questions"):
        asked = delivery.message
        answer = Message("answer", to=asked.reply_to, correlation_id=asked.message_id)
        await relay.send(answer)
        await delivery.accept()


BUSY = (publish_news, ask_questions, answer_questions)


async def until_printed(printed: list[object], task: asyncio.Task[None]) -> None:
    """Run a program until it has printed something, and end it if it is not over."""
    while not printed and not task.done():  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.mark.timeout(60)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(("page", "code"), BLOCKS)
async def test_it_runs(
    page: str, code: str, broker: BrokerServer, redirected: list[Any], folder: Path
) -> None:
    async with asyncio.timeout(30), ferrymq.connect(container_id="me") as connection:
        await fill(connection)
        busy = [asyncio.create_task(work(connection)) for work in BUSY]
        module = types.ModuleType("page")
        printed: list[object] = []
        vars(module)["print"] = lambda *values: printed.append(values)
        program = compile(code, f"{page}.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
        await asyncio.to_thread(eval, program, vars(module))
        for name, function in list(vars(module).items()):
            if not inspect.iscoroutinefunction(function) or function.__module__ != "page":
                continue
            if name in ELSEWHERE:
                continue
            given = {
                "connection": connection,
                "sender": await connection.sender("orders"),
                "delivery": await (await connection.receiver("receipts", credit=1)).receive(),
                "url": broker.url,
                "message": Message("one"),
                "messages": [Message("one"), Message("two")],
                "count": 1,
                "first": 0,
                "until": 3,
                "end": 3,
                "notes": {b"tag-1": Message("42.00").encode()},
                "done": [],
                "batch": 1,
                "rows": [b"one", b"two"],
                "amount": 42,
                "order": uuid4(),
                "question": "why?",
                "country": "fr",
                "text": "text",
                "price": 17.3,
                "symbol": "X",
                "seconds": 60.0,
                "offset": 0,
                "epoch": 1,
                "to": "orders",
                "body": "body",
            }
            parameters = inspect.signature(function).parameters
            work = function(**{parameter: given[parameter] for parameter in parameters})
            if name in ENDLESS:
                await until_printed(printed, asyncio.create_task(work))
            else:
                await work
        for coroutine in redirected:
            coroutine.close()
        for task in busy:
            assert not task.done()
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)
