"""The commands as they are typed: what they print, how they stop, what they say when they fail."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ferrymq import ManagementError
from pyspark_ferrymq.cli import app
from pyspark_ferrymq.cli.durations import duration
from pyspark_ferrymq.cli.error_messages import reason_of
from pyspark_ferrymq.errors import AmqpOptionError
from pyspark_ferrymq.options import AmqpUnreachableError
from tests.interop.broker_process import BrokerProcess
from tests.spark.kit import Streams
from tests.spark.test_pipelines_metrics import made_at

COMMAND = [sys.executable, "-m", "ferrymq_broker", "pipeline"]


@pytest.mark.slow
def test_a_query_prints_and_ends_cleanly_by_ctrl_c(
    broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    report = tmp_path / "report.html"
    with Streams(broker) as streams:
        streams.create(address)
        streams.publish(address, [made_at(0, 1), made_at(0.5, 2), made_at(9, 3)])
    arguments = [
        "metrics", address, "--url", broker.url, "--by", "created", "--every", "1 second",
        "--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=1",
        "--report", str(report), "--json",
    ]  # fmt: skip
    with subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        row = json.loads(process.stdout.readline())
        assert (row["address"], row["messages"], row["bytes"]) == (address, 2, 10)
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate(timeout=60)
    assert (process.returncode, rest, said) == (130, "", "")
    assert "Plotly.newPlot(" in report.read_text("utf-8")


def test_what_is_wrong_is_said_in_one_line_before_spark_starts(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    word = tmp_path / "word"
    word.write_text("geheim")
    gone = "amqp://127.0.0.1:1"
    for arguments, said in (
        (("metrics",), "choose streams"),
        (("metrics", "a", "--to", "b"), "give --checkpoint DIR"),
        (("triage", "dead", "--retry"), "--where true for all"),
        (("archive", "a", "--path", "x", "--checkpoint", "x"), "different directories"),
        (("replay", "a", "--to", "a", "--checkpoint", "x"), "is also the source"),
        (("replay", "a", "--to", "b", "--checkpoint", "x", "--from", "{"), "or offsets as"),
        (("metrics", "a", "--once", "--conf", "x=1"), "is not spark.KEY=VALUE"),
        (("--user", "me", "--password-file", str(word), "work", "--url", gone), "no connection to"),
        (("--password-file", str(tmp_path / "none"), "metrics", "a"), "No such file"),
        (("--password-file", str(binary), "metrics", "a"), "binary has no password or token"),
    ):
        done = CliRunner().invoke(app, arguments, prog_name="ferrymq pipeline")
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.startswith("ferrymq: ") and done.stderr.count("\n") == 1
        assert said in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("metrics", "a", "--window", "1"), "'1' is not a duration; examples: 500ms"),
        (("metrics", "a", "--window", "0s"), "has to be more than zero"),
        (("archive", "a", "--path", "x", "--every", "soon"), "'soon' is not a duration"),
        (("work", "--idle", "-1"), "'-1' is not a duration"),
    ],
)
def test_what_is_no_span_of_time(arguments: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(app, arguments, prog_name="ferrymq pipeline", env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert said in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("1s", "1 second"),
        ("500ms", "500 milliseconds"),
        ("90s", "90 seconds"),
        ("60 s", "1 minute"),
        ("2h", "2 hours"),
        ("1 minute", "1 minute"),
        ("5 seconds", "5 seconds"),
        ("0s", "0 seconds"),
        ("1w", "7 days"),
    ],
)
def test_spans_of_time(given: str, words: str) -> None:
    assert duration(given) == words


def test_a_package_that_is_missing_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pyspark_ferrymq.pipelines.metrics", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyspark"]:
        monkeypatch.setitem(sys.modules, name, None)
    done = CliRunner().invoke(app, ("metrics", "a"), prog_name="ferrymq pipeline")
    assert done.exit_code == 1
    assert done.stderr.startswith("ferrymq: there is no package 'pyspark") and "\n" in done.stderr
    assert "pip install 'ferrymq[spark]'" in done.stderr


def test_what_was_said_at_the_source_is_what_is_told() -> None:
    class Captured(Exception):
        pass

    Captured.__module__ = "pyspark.errors.exceptions.captured"
    wrapped = Captured(
        "[PYTHON_DATA_SOURCE_ERROR] Failed to plan: Traceback (most recent call last):\n"
        '  File "x.py", line 1\nferrymq.errors.TransportError: nobody there\n\nDuring handling …\n'
        "pyspark_ferrymq.errors.AmqpDataLossError: stream 'a': offsets 1 to 4 are gone\n"
        " SQLSTATE: 38000"
    )
    assert reason_of(wrapped) == "stream 'a': offsets 1 to 4 are gone"
    # Whatever module of the package the error is of.
    for kind in (AmqpUnreachableError, ManagementError):
        name = f"{kind.__module__}.{kind.__qualname__}"
        text = f"Failed to plan: Traceback (most recent call last):\n{name}: not today\n"
        assert reason_of(Captured(text)) == "not today"
    plain = Captured("[PARSE_SYNTAX_ERROR] Syntax error at 'x'. SQLSTATE: 42601 (line 1)\n\n== SQL")
    assert reason_of(plain) == "Syntax error at 'x'."
    group = ExceptionGroup("two", [AmqpOptionError("one\nand more"), ValueError()])
    assert reason_of(group) == "one"
