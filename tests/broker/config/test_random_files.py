"""Whatever a file says, it is a configuration or is told what is wrong; nothing else comes up."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ferrymq_broker.config import load_config
from ferrymq_broker.config.load import BadFile
from ferrymq_broker.config.nodes import SETTINGS
from ferrymq_broker.config.section import kebab

KEYS = sorted(
    {kebab(name) for model in SETTINGS.values() for name in model.model_fields}
    | {"name", "pattern", "policy", "to", "key", "arguments", "host", "port", "url", "limit"}
    | {"memory", "low-water", "auto-create", "credit", "idle-time-out", "level", "hostnames"}
    | {"max_length", "'odd key'", '"x.y"', "a.b"}
)
VALUES = st.sampled_from(
    [
        "0",
        "1",
        "-1",
        "5",
        "11",
        "1e400",
        "nan",
        "-inf",
        "0.5",
        "true",
        "false",
        '""',
        "'a'",
        "'b'",
        "'c'",
        "'a*'",
        "'b?'",
        "'c::d'",
        "'$x'",
        "'30s'",
        "'1GiB'",
        "'40%'",
        "0xz",
        "'block'",
        "'dead-letter'",
        "'topic'",
        "'amqp://127.0.0.1:0'",
        "'amqp://0.0.0.0'",
        "'http://h:1'",
        "[]",
        "{}",
        "[1,2]",
        "['a']",
        "{x=1}",
        "[{name='a'}]",
        "1979-05-27T07:32:00Z",
        "0xffffffffffffffffffff",
        "0x" + "f" * 5000,
        "'''\n[queue]\n'''",
        '"""\\\n  x"""',
        "[ # comment\n 1,\n]",
        "'''amqp://\n'''",
    ]
)
TABLES = st.sampled_from(
    [
        "[queue]",
        "[[queue]]",
        "[[topic]]",
        "[topic.subscription]",
        "[[stream]]",
        "[[exchange]]",
        "[[exchange.binding]]",
        "[exchange.binding]",
        "[[alias]]",
        "[[redirect]]",
        "[[virtual-host]]",
        "[[virtual-host.queue]]",
        "[[virtual-host.exchange]]",
        "[[virtual-host.exchange.binding]]",
        "[virtual-host.nodes]",
        "[policies]",
        "[policies.a]",
        "[policies.'b']",
        "[nodes]",
        "[limits]",
        "[alarms]",
        "[http]",
        "[security]",
        "[security.users]",
        "[shutdown]",
        "[log]",
        "[[listener]]",
        "[[policies]]",
        "[a.b.c]",
        '["queue"]',
        "[[ 'virtual-host' . alias ]]",
    ]
)


@st.composite
def files(draw: st.DrawFn) -> str:
    """A file that looks like a configuration and hardly ever is a good one."""
    lines: list[str] = []
    for _ in range(draw(st.integers(0, 6))):
        if lines or draw(st.booleans()):
            lines.append(draw(TABLES))
        for key in draw(st.lists(st.sampled_from(KEYS), unique=True, max_size=5)):
            lines.append(f"{key} = {draw(VALUES)}")
    return "\n".join(lines)


def judge(path: Path, text: str) -> None:
    """Load the file; what is wrong must be told in lines that exist."""
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        load_config(path)
    except BadFile as error:
        assert error.problems
        count = text.count("\n") + 1
        for problem in error.problems:
            assert 0 <= problem.line <= count
            assert problem.reason and "\n" not in problem.reason


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file to be written again and again."""
    return tmp_path_factory.mktemp("random") / "ferrymq.toml"


@settings(max_examples=400)
@given(files())
@example("x = " + "9" * 5000)
@example("[limits]\ncredit = 0x" + "f" * 5000)
@example("[limits]\nidle-time-out = 0x" + "f" * 5000)
@example("[[queue]]\nname = 'a'\nmessage-ttl = 0x" + "f" * 5000)
@example("[[queue]]\nname = 'a'\nmax-bytes = 0x" + "f" * 5000)
@example("x = " + "[" * 5000 + "]" * 5000)
@example("[virtual-host]\nname = 'x'")
@example("queue = 5")
@example("queue = [5]")
@example("policies = [{ x = 1 }]")
@example("[policies]\na = 5")
def test_files_that_look_like_configurations(path: Path, text: str) -> None:
    judge(path, text)


@settings(max_examples=200)
@given(st.text(max_size=60))
def test_any_text(path: Path, text: str) -> None:
    judge(path, text)


TOUR = Path(__file__).resolve().parents[3] / "examples/broker/ferrymq.toml"


@settings(max_examples=150)
@given(st.data())
def test_a_good_file_with_a_line_gone_wrong(path: Path, data: st.DataObject) -> None:
    """Lines that are lost, doubled or changed places."""
    lines = TOUR.read_text("utf-8").split("\n")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        other = data.draw(st.integers(0, len(lines) - 1))
        what = data.draw(st.sampled_from(["lose", "double", "swap"]))
        if what == "lose":
            del lines[at]
        elif what == "double":
            lines.insert(other % len(lines), lines[at])
        else:
            lines[at], lines[other % len(lines)] = lines[other % len(lines)], lines[at]
    judge(path, "\n".join(lines))
