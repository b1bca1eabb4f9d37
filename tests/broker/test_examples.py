"""The examples do what they say."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from ferrymq_broker.config import Config, Policy, Subscription, load_config
from ferrymq_broker.config.nodes import KINDS, policy_attributes
from ferrymq_broker.config.section import kebab
from ferrymq_broker.values.policy import QueuePolicy

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATION = ROOT / "docs/broker/configuration.md"


EXAMPLES = sorted((ROOT / "examples/broker").glob("*.py"))

examples = pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)


def promised(example: Path) -> list[str]:
    """What an example says that it prints: the comment at its end."""
    _, found, comment = example.read_text("utf-8").partition("\n# Prints:\n")
    assert found, f"{example.name} does not say what it prints"
    return [line.removeprefix("#").removeprefix(" ") for line in comment.splitlines()]


def is_as_promised(printed: str, line: str) -> bool:
    """Whether a line is what was promised, in which … is whatever differs from run to run."""
    parts = [re.escape(part) for part in line.split("…")]
    return re.fullmatch(".+".join(parts), printed.rstrip()) is not None


@examples
def test_examples_print_what_they_say(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(example), run_name="__main__")
    printed = capsys.readouterr().out.splitlines()
    expected = promised(example)
    assert len(printed) == len(expected), printed
    for line, wanted in zip(printed, expected, strict=True):
        assert is_as_promised(line, wanted), f"{line!r} is not {wanted!r}"


@examples
def test_examples_are_short_and_wait_for_what_they_wait_for(example: Path) -> None:
    code = example.read_text("utf-8").partition("\n# Prints:\n")[0]
    assert len(code.splitlines()) <= 80
    assert "sleep" not in code


@examples
def test_examples_are_shown_on_a_page(example: Path) -> None:
    link = f"examples/broker/{example.name})"
    assert any(link in page.read_text("utf-8") for page in (ROOT / "docs/broker").glob("*.md"))


def test_examples_are_programs() -> None:
    result = subprocess.run(
        [sys.executable, str(ROOT / "examples/broker/embedded.py")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    assert "received one coffee, please" in result.stdout


def test_the_example_configuration_shows_every_kind_of_node() -> None:
    config = load_config(ROOT / "examples/broker/ferrymq.toml")
    assert {kind for kind, _, _ in config.declared()} == set(KINDS)
    assert config.alias and config.redirect and config.virtual_host and config.policies
    assert any(entry.pattern for _, _, entry in config.declared())
    assert config.security.anonymous is False


def documented() -> str:
    found = re.search(r"```toml\n(.*?)```", CONFIGURATION.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def tables(model: BaseModel) -> Iterator[BaseModel]:
    """All tables of a configuration, the outer ones first."""
    yield model
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, dict):
            value = list(value.values())
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, BaseModel):
                yield from tables(item)


def loaded(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "all.toml"
    path.write_text(text, "utf-8")
    return load_config(path)


def test_the_documented_configuration_has_every_key(tmp_path: Path) -> None:
    config = loaded(tmp_path, documented())
    said: dict[type[BaseModel], set[str]] = {}
    for table in tables(config):
        said.setdefault(type(table), set()).update(table.model_fields_set)
    # These have the keys of the nodes they are for, and nothing else but their names.
    shared = (Policy, Subscription)
    missing = {
        f"{model.__name__}.{kebab(name)}"
        for model, names in said.items()
        if model not in shared
        for name in set(model.model_fields) - names
    }
    # A virtual host has the tables of the top.
    inherited = ("topic", "subscription", "stream", "exchange", "alias", "redirect", "rule")
    assert missing == {f"VirtualHost.{kind}" for kind in inherited}
    assert {"Queue", "Topic", "Stream", "Exchange", "Http"} <= {each.__name__ for each in said}


def test_the_documented_values_are_the_defaults_where_nothing_else_is_said(
    tmp_path: Path,
) -> None:
    """Every line without the word "default" could be left out."""
    lines = documented().splitlines()
    needed = [
        line
        for line in lines
        if "default:" in line
        or not re.match(r"[a-z-]+ = ", line)
        or line.startswith(("alice", "staff", "url"))
    ]
    assert len(needed) < len(lines) - 40
    everything = loaded(tmp_path, documented()).model_dump()
    assert loaded(tmp_path, "\n".join(needed)).model_dump() == everything


TOML = re.compile(r"```toml\n(.*?)```", re.DOTALL)
CONFIGURED = [
    page
    for page in [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
    if TOML.search(page.read_text("utf-8"))
]


@pytest.mark.parametrize("page", CONFIGURED, ids=lambda page: str(page.relative_to(ROOT)))
def test_documented_configurations_are_good(tmp_path: Path, page: Path) -> None:
    for block in TOML.findall(page.read_text("utf-8")):
        loaded(tmp_path, block)


def test_the_table_of_settings_has_every_setting_of_a_queue_and_its_default() -> None:
    page = (ROOT / "docs/broker/queues.md").read_text("utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \| [^|]* \| ([^|]*) \|", page, re.MULTILINE)
    defaults = {key: re.split(r"[:` ]+", text.strip("` "))[0] for key, text in rows}
    settings = policy_attributes(QueuePolicy())
    assert defaults.keys() == settings.keys()
    words = {"none": "", "off": 0, "as": "", "false": False, "true": True, "empty": []}
    for key, value in settings.items():
        word = defaults[key]
        default = words.get(word, word)
        if key == "auto-delete":
            assert (word, value) == ("false", -1)
        else:
            assert str(default) == str(value), key
