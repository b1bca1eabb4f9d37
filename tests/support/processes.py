"""What tests with a broker process share: addresses of their own, and its log when they fail."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

_numbers = itertools.count(1)


def own_address(request: pytest.FixtureRequest) -> str:
    """An address no other test uses."""
    return f"{request.node.originalname}-{next(_numbers)}"


def show_logs(item: pytest.Item, report: pytest.TestReport, kind: type[Any]) -> None:
    """When a test has failed, what its brokers have logged; `kind` is what has one as `log`."""
    if report.failed:
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, kind):
                report.sections.append((f"stderr of {name}", value.log[-8000:]))
