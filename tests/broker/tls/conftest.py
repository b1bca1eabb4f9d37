from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.tls.pki import Pki


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    """Certificates for one test."""
    return Pki(tmp_path)
