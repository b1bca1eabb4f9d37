"""The Python on pages about the broker and the engine runs as it is written.

`tests/client/test_pages.py` has the pages whose code is a client's. Connections lead to a broker of
the test, wherever the page says; files are in a folder of the test.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import types
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import ferrymq
from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [
    "broker/addresses", "broker/capture", "broker/configuration", "broker/durability",
    "broker/filters", "broker/flow-control", "broker/policies", "broker/running", "broker/tokens",
    "broker/virtual-hosts", "broker/websocket", "engine",
]  # fmt: skip
BLOCKS = [
    pytest.param(
        code, id=f"{page}-{number}", marks=[] if page == "engine" else pytest.mark.page(page)
    )
    for page in PAGES
    for number, code in enumerate(
        re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text("utf-8"), re.S)
    )
]


@pytest.fixture
async def server(code: str) -> AsyncIterator[BrokerServer]:
    config: dict[str, Any] = {"listener": [{"url": "amqp://127.0.0.1:0"}]}
    if "vhost:tenant" in code:
        config["virtual-host"] = [{"name": "tenant"}]
    async with BrokerServer(Config.model_validate(config)) as running:
        yield running


@pytest.fixture
def redirected(monkeypatch: pytest.MonkeyPatch, server: BrokerServer) -> list[Any]:
    """Connections to hosts of the pages go to the broker; what `asyncio.run` gets is kept."""
    connect: Callable[..., Any] = ferrymq.connect
    started: list[Any] = []

    def to_broker(url: str, **options: Any) -> Any:
        if "localhost" in url or "127.0.0.1:" in url:
            return connect(url, **options)
        # That broker has neither TLS nor tokens: their own tests are in `tls` and `tokens`.
        options.pop("token", None)
        return connect(server.url, **options)

    monkeypatch.setattr(ferrymq, "connect", to_broker)
    monkeypatch.setattr(asyncio, "run", started.append)
    return started


@pytest.mark.timeout(60)
@pytest.mark.parametrize("code", BLOCKS)
async def test_it_runs(
    code: str,
    server: BrokerServer,
    redirected: list[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "capture").mkdir()
    code = code.replace("/srv/capture", str(tmp_path / "capture"))
    module = types.ModuleType("page")
    program = compile(code, "page.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
    ran = eval(program, vars(module))
    if inspect.iscoroutine(ran):
        await ran
    for coroutine in redirected:
        await coroutine
    given = {
        "broker": server.broker, "jobs": 2_000_000, "token": "eyJhbGciOi...",
        "error": OSError("the disk is full"),
    }  # fmt: skip
    for function in list(vars(module).values()):
        if not inspect.isfunction(function) or function.__module__ != "page":
            continue
        if redirected and inspect.iscoroutinefunction(function):
            continue
        wanted = inspect.signature(function).parameters
        result = function(**{name: given[name] for name in wanted})
        if inspect.iscoroutine(result):
            await result
