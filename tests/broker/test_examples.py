"""The examples do what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from ferrymq_broker.config import load_config

ROOT = Path(__file__).resolve().parents[2]


def test_the_embedded_broker() -> None:
    result = subprocess.run(
        [sys.executable, str(ROOT / "examples/broker/embedded.py")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    assert "received one coffee, please" in result.stdout


def test_the_example_configuration() -> None:
    config = load_config(ROOT / "examples/broker/ferrymq.toml")
    assert [queue.name for queue in config.queue] == ["orders", "invoices"]
    assert config.security.anonymous is False


def test_the_documented_configuration_has_every_key(tmp_path: Path) -> None:
    """And the defaults it names are the defaults."""
    page = (ROOT / "docs/broker/configuration.md").read_text("utf-8")
    text = re.search(r"```toml\n(.*?)```", page, re.DOTALL)
    assert text is not None
    path = tmp_path / "all.toml"
    path.write_text(text[1], "utf-8")
    documented = load_config(path)
    plain = load_config(_empty(tmp_path))
    for section in ("limits", "nodes", "log", "listener"):
        assert getattr(documented, section) == getattr(plain, section)
    for part in (documented, documented.limits, documented.nodes, documented.log):
        assert part.model_fields_set == set(type(part).model_fields)
    assert documented.security.model_fields_set == {"anonymous", "users"}


def _empty(tmp_path: Path) -> Path:
    path = tmp_path / "empty.toml"
    path.touch()
    return path
