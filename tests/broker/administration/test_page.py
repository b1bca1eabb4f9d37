"""The example of the page about administration."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from ferrymq_broker.config.security import Security
from ferrymq_servicebus import AZURE
from tests.broker.tls.conftest import pki as pki
from tests.broker.tls.pki import Pki, serving
from tests.support.reader import blocks

PAGE = Path(__file__).parents[3] / "docs" / "broker" / "azure-administration.md"


async def test_the_example(pki: Pki, capsys: pytest.CaptureFixture[str]) -> None:
    found = blocks(PAGE.read_text("utf-8"))
    (code,) = [code for language, code in found if language == "python"]
    key = {"name": "owner", "primary": "b3duZXI=", "may": "*"}
    security = Security.model_validate({"shared_access_key": [key]})
    server = serving(pki.tls(), "any://127.0.0.1:0", security=security)
    server.tables = replace(server.tables, http_handlers=AZURE.tables.http_handlers)
    async with server:
        code = code.replace("broker.example:5671", f"localhost:{server.port}")
        code = code.replace("certs/ca.pem", str(pki.path("ca"))).replace("…", "b3duZXI=")
        await asyncio.to_thread(exec, compile(code, str(PAGE), "exec"), {})
        assert "orders" in server.broker.default.nodes
    assert capsys.readouterr().out == "0\n"
