"""What tests of several workers share: a broker with a virtual host at each of two workers, and
requests over HTTP to the monitoring listener, which worker 0 has."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import Any, Final

from tests.raw.process import PATIENCE

# The default virtual host is at worker 0, and this one at worker 1.
TENANT: Final = """
[http]
url = "http://127.0.0.1:0"
[[virtual-host]]
name = "tenant"
hostnames = ["tenant.example"]
worker = 1
"""
WORKERS: Final = "workers = 2\n"


def fetch(
    url: str,
    method: str = "GET",
    body: object = None,
    user: str = "",
    headers: dict[str, str] | None = None,
) -> tuple[int, str]:
    """Send a request; return the status and the text of the answer. `user` is ``name:password``."""
    told = {"Content-Type": "application/json", **(headers or {})}
    if user:
        told["Authorization"] = f"Basic {b64encode(user.encode()).decode()}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, told, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def read(url: str, **options: Any) -> Any:
    """Return the JSON at a URL."""
    status, text = fetch(url, **options)
    assert status in (200, 201), (status, text)
    return json.loads(text)


def worker_pids(pid: int) -> list[int]:
    """The processes of the workers of a supervisor, by number."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
