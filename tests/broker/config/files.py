"""Configuration files that are made for a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferrymq_broker.config import Config, load_config
from ferrymq_broker.config.errors import ConfigError


def load(tmp_path: Path, text: str) -> Config:
    """The configuration that a file with this text is."""
    path = tmp_path / "ferrymq.toml"
    path.write_text(text, "utf-8")
    return load_config(path)


def complaint(tmp_path: Path, text: str) -> str:
    """What is said of a file with this text, which must be bad; without its directory."""
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    return str(caught.value).replace(str(tmp_path) + "/", "")
