"""The interpreted and the compiled run really run what they say."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest

import hatch_build

ROOT = Path(__file__).resolve().parents[2]
CONFIG = hatch_build.Config.read(ROOT)
MODULES = [CONFIG.module(path) for path in CONFIG.compiled()]


def test_the_hot_packages_are_listed_for_compilation() -> None:
    packages = {name.split(".")[0] for name in MODULES}
    assert {"ferrymq_codec", "ferrymq_types", "ferrymq"} <= packages


@pytest.mark.skipif("FERRYMQ_BUILD" not in os.environ, reason="no variant was asked for")
@pytest.mark.parametrize("name", MODULES)
def test_module_comes_from_the_variant_under_test(name: str) -> None:
    file = importlib.import_module(name).__file__
    assert file is not None
    expected = {"pure": ".py", "compiled": hatch_build.EXTENSION_SUFFIX}
    assert file.endswith(expected[os.environ["FERRYMQ_BUILD"]]), file


def test_the_sources_hold_no_extension() -> None:
    found = [path for path in CONFIG.files() if path.suffix in (".so", ".pyd")]
    assert not found
