from __future__ import annotations

import logging

import pytest


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Connections that break are no news here; what other tests log is theirs."""
    caplog.set_level(logging.CRITICAL, "ferrymq")
