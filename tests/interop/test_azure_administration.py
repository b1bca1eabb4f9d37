"""Azure's administration client for Node, unmodified, over TLS."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ferrymq_broker.config.security import Security
from ferrymq_servicebus.administration.http_api import make_handler
from tests.broker.tls.conftest import pki as pki
from tests.broker.tls.pki import Pki, serving

pytestmark = pytest.mark.interop

NODE = Path(__file__).parent / "azure"
KEY = {"name": "owner", "primary": "b3duZXI=", "may": "*"}


@pytest.mark.skipif(
    shutil.which("node") is None or not (NODE / "node_modules").exists(),
    reason="needs node and `npm ci` in tests/interop/azure",
)
@pytest.mark.page("broker/azure-administration")
async def test_administration(pki: Pki) -> None:
    security = Security.model_validate({"shared_access_key": [KEY]})
    server = serving(pki.tls(), "any://127.0.0.1:0", security=security)
    server.tables = replace(server.tables, http_handlers={"": make_handler})
    async with server:
        connection = (
            f"Endpoint=sb://localhost:{server.port};SharedAccessKeyName=owner;"
            "SharedAccessKey=b3duZXI="
        )
        process = await asyncio.create_subprocess_exec(
            "node",
            "administration.js",
            cwd=NODE,
            env={**os.environ, "NODE_EXTRA_CA_CERTS": str(pki.path("ca"))},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        asked = json.dumps({"connection": connection}).encode()
        async with asyncio.timeout(60):
            out, errors = await process.communicate(asked)
    assert process.returncode == 0, errors.decode()
    said = json.loads(out)
    rules = {rule["name"]: rule for rule in said.pop("rules")}
    assert said == {
        "namespace": "default",
        "queue": ["orders", "PT30S", "mine", 10],
        "updated": 5,
        "there": [True, False],
        "figures": ["orders", 0, 0],
        "errors": [
            "MessageEntityAlreadyExistsError",
            "MessageEntityNotFoundError",
            "MessageEntityNotFoundError",
        ],
        "pages": [["orders", "queue-0"], ["queue-1", "queue-2"], ["queue-3"]],
        "forwarding": "queue-0",
        "subscription": ["news", "audit", 4],
        "lists": [["news"], ["audit"]],
        "counts": [0, 0],
        "left": [],
    }
    assert list(rules) == ["$Default", "equal", "red"]
    assert rules["equal"]["filter"] == {
        "subject": "label",
        "applicationProperties": {
            "number": 1,
            "text": "x",
            "time": "1970-01-01T00:00:00.000Z",
            "flag": True,
        },
    }
    assert rules["red"]["filter"]["sqlExpression"] == "color = 'red'"
    assert rules["red"]["action"]["sqlExpression"] == "SET color = 'blue'"
