"""Access to the definition files in ``spec/``."""

from __future__ import annotations

from pathlib import Path

import pytest
from lxml import etree

SPEC = Path(__file__).resolve().parents[2] / "spec"


@pytest.fixture(scope="session")
def spec_dir() -> Path:
    return SPEC


@pytest.fixture(scope="session")
def dtd() -> etree.DTD:
    return etree.DTD(str(SPEC / "amqp.dtd"))
