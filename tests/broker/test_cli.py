"""`ferrymq send` and `ferrymq receive`, as processes against a real broker."""

from __future__ import annotations

import json
import signal
import subprocess
import uuid
from collections.abc import Iterator
from decimal import Decimal

import pytest

from ferrymq import Message
from ferrymq_broker.cli.rendering import as_json, as_text, plain
from ferrymq_codec.containers import PairMap
from ferrymq_codec.scalars import Described, Symbol, Timestamp, UInt
from ferrymq_types.messaging import AmqpSequence, AmqpValue, Data
from tests.broker.test_process import COMMAND, port_in, run, serve

# The command line is not compiled.
pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve("--listen", "amqp://127.0.0.1:0") as (_, lines):
        yield f"amqp://127.0.0.1:{port_in(lines[0])}"


@pytest.fixture
def address() -> str:
    return f"q-{uuid.uuid4()}"


def test_bodies_from_the_command_line(url: str, address: str) -> None:
    sent = run("send", "--url", url, address, "one", "two three", "vier ä𝄞")
    assert (sent.returncode, sent.stderr) == (0, "")
    assert sent.stdout == f"3 messages sent to {address}\n"
    got = run("receive", "--url", url, address, "--count", "3")
    assert (got.returncode, got.stderr) == (0, "")
    assert got.stdout == "one\ntwo three\nvier ä𝄞\n"


def test_bodies_from_standard_input(url: str, address: str) -> None:
    lines = "".join(f"{number}\n" for number in range(2500))
    sent = run("send", "--url", url, address, "--json", stdin=lines)
    report = json.loads(sent.stdout)
    assert report.pop("seconds") > 0
    assert report == {"address": address, "accepted": 2500, "failed": 0}
    got = run("receive", "--url", url, address, "--count", "2500")
    assert got.stdout == lines
    assert run("receive", "--url", url, address, "--timeout", "0").stdout == ""


def test_receiving_takes_no_more_than_it_was_told(url: str, address: str) -> None:
    run("send", "--url", url, address, *[str(n) for n in range(10)])
    assert run("receive", "--url", url, address, "-n", "4").stdout.split() == list("0123")
    assert run("receive", "--url", url, address, "-n", "6").stdout.split() == list("456789")


def test_browsing_leaves_messages_there(url: str, address: str) -> None:
    run("send", "--url", url, address, "a", "b")
    for _ in range(2):
        assert run("receive", "--url", url, address, "--browse", "-n", "2").stdout == "a\nb\n"


def test_a_whole_message_as_json(url: str, address: str) -> None:
    # Messages are durable unless the command says otherwise.
    arguments = ["--subject", "s", "-p", "k=v", "-p", "empty=", "--bytes"]
    run("send", "--url", url, address, "body", *arguments)
    got = run("receive", "--url", url, address, "-n", "1", "--json")
    assert json.loads(got.stdout) == {
        "durable": True,
        "subject": "s",
        "application-properties": {"k": "v", "empty": ""},
        "body-type": "data",
        "body": "body",
    }


def test_what_holds_for_all_messages(url: str, address: str) -> None:
    arguments = ["--priority", "9", "--ttl", "3600", "--group", "g", "-a", "x-colour=red"]
    arguments.append("--no-durable")
    assert run("send", "--url", url, address, "body", *arguments).returncode == 0
    got = json.loads(run("receive", "--url", url, address, "-n", "1", "--json").stdout)
    assert 3_500_000 < got.pop("ttl") <= 3_600_000
    assert got == {
        "priority": 9,
        "group-id": "g",
        "message-annotations": {"x-colour": "red"},
        "body-type": "value",
        "body": "body",
    }


def test_properties_that_are_no_strings(url: str, address: str) -> None:
    pairs = ["-p", "weight:=3", "-p", "share:=0.5", "-p", "new:=true", "-p", "colour:=null"]
    assert run("send", "--url", url, address, "light", "-p", "weight:=2").returncode == 0
    assert run("send", "--url", url, address, "heavy", *pairs).returncode == 0
    got = run("receive", "--url", url, address, "--selector", "weight > 2", "-n", "1", "--json")
    assert json.loads(got.stdout)["application-properties"] == {
        "weight": 3,
        "share": 0.5,
        "new": True,
        "colour": None,
    }


@pytest.mark.parametrize("pair", ["a:=", "a:={", f"a:={2**63}"])
def test_properties_that_are_nothing(url: str, pair: str) -> None:
    result = run("send", "--url", url, "q", "x", "-p", pair)
    assert result.returncode == 2 and pair in result.stderr


def test_a_message_for_later(url: str, address: str) -> None:
    run("send", "--url", url, address, "later", "--delay", "3600")
    run("send", "--url", url, address, "now")
    assert run("receive", "--url", url, address, "-n", "1").stdout == "now\n"


def test_only_what_is_selected(url: str, address: str) -> None:
    run("send", "--url", url, address, "a", "-p", "colour=red")
    run("send", "--url", url, address, "b", "-p", "colour=blue")
    selected = run("receive", "--url", url, address, "--selector", "colour = 'blue'", "-n", "1")
    assert selected.stdout == "b\n"
    assert run("receive", "--url", url, address, "-n", "1").stdout == "a\n"


def test_a_full_queue_is_a_failure_in_time(url: str, address: str) -> None:
    settings = ["max-length=1", "overflow=block"]
    assert run("admin", "create", "--url", url, "queue", address, *settings).returncode == 0
    sent = run("send", "--url", url, address, "a", "b", "--timeout", "0.05")
    assert (sent.returncode, sent.stdout) == (1, f"1 message sent to {address}\n")
    assert sent.stderr == f"ferrymq: '{address}' gave no credit for 0.05 s\n"


def test_too_few_messages_are_a_failure(url: str, address: str) -> None:
    run("send", "--url", url, address, "only")
    got = run("receive", "--url", url, address, "-n", "2", "--timeout", "0.05")
    assert got.returncode == 1
    assert got.stdout == "only\n"
    assert got.stderr == "ferrymq: 1 of 2 messages came within 0.05 s\n"


def test_ctrl_c_ends_receiving_and_loses_nothing(url: str, address: str) -> None:
    process = subprocess.Popen(
        [*COMMAND, "receive", "--url", url, address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        run("send", "--url", url, address, "first")
        assert process.stdout is not None
        assert process.stdout.readline() == "first\n"
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    assert (process.returncode, output, errors) == (0, "", "")
    run("send", "--url", url, address, "second")
    assert run("receive", "--url", url, address, "-n", "1").stdout == "second\n"


@pytest.mark.parametrize("seen", [1, 5])
def test_what_the_reader_of_a_pipe_does_not_take_stays_in_the_queue(
    url: str, address: str, seen: int
) -> None:
    bodies = [str(number) for number in range(150)]
    run("send", "--url", url, address, stdin="\n".join(bodies))
    receiving = subprocess.Popen(
        [*COMMAND, "receive", "--url", url, address, "--timeout", "20"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    try:
        assert receiving.stdout is not None
        read = b""
        while read.count(b"\n") < seen:
            read += receiving.stdout.read(100)
        receiving.stdout.close()
        receiving.wait(20)
    finally:
        receiving.kill()
        receiving.communicate()
    taken = read.decode().split()
    rest = run("receive", "--url", url, address, "-n", str(150 - seen), "--json")
    left = [json.loads(line) for line in rest.stdout.splitlines()]
    assert taken + [one["body"] for one in left] == bodies and len(taken) == seen
    # The end of the reader is no failure of a message.
    assert {one.get("delivery-count", 0) for one in left} == {0}


@pytest.mark.parametrize("command", ["send", "receive"])
@pytest.mark.parametrize(
    ("where", "address", "message"),
    [
        ("amqp://127.0.0.1:1", "q", "cannot connect"),
        ("http://127.0.0.1", "q", "amqp://"),
        (None, "$nothing", "amqp:not-found"),
    ],
)
def test_failures_are_one_line(
    url: str, command: str, where: str | None, address: str, message: str
) -> None:
    result = run(command, "--url", where or url, address, *(["x"] if command == "send" else []))
    assert result.returncode == 1
    assert result.stdout == ""
    assert message in result.stderr
    assert result.stderr.startswith("ferrymq: ") and result.stderr.count("\n") == 1


def test_wrong_usage_is_status_two(url: str) -> None:
    assert run("send", "--url", url, "q", "x", "-p", "novalue").returncode == 2
    assert run("send", "--url", url, "q", "x", "--priority", "10").returncode == 2
    assert run("send", "--url", url, "q", "x", "--ttl", "5000000").returncode == 2
    assert run("receive", "--url", url, "q", "-n", "0").returncode == 2
    assert run("receive", "--url", url, "q", "--start", "tomorrow").returncode == 2
    assert run("receive").returncode == 2
    assert run("nonsense").returncode == 2


def test_a_reader_that_goes_away_gets_back_nothing_but_quiet(url: str, address: str) -> None:
    run("send", "--url", url, address, *["x" * 1000] * 500)
    process = subprocess.Popen(
        [*COMMAND, "receive", "--url", url, address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=20) == 1
        assert "Traceback" not in process.stderr.read()
        process.stderr.close()
    finally:
        process.kill()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("text", "text"),
        (b"text", "text"),
        (b"\xff\x00", "(2 bytes)"),
        (None, "null"),
        (True, "true"),
        ([1, "a", None], '[1, "a", null]'),
        ({"k": UInt(5), 7: b"x"}, '{"k": 5, "7": "x"}'),
        (AmqpValue("v"), "v"),
        (AmqpSequence([1, 2]), "[1, 2]"),
        ([Data(b"a"), Data(b"b")], "ab"),
    ],
)
def test_bodies_as_text(body: object, text: str) -> None:
    assert as_text(Message(body=body)) == text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"\xff", {"base64": "/w=="}),
        (Timestamp(0), "1970-01-01T00:00:00+00:00"),
        (Timestamp(2**62), 2**62),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Decimal("1.50"), "1.50"),
        (float("nan"), "nan"),
        (Symbol("s"), "s"),
        (Described(Symbol("d"), [1]), {"descriptor": "d", "value": [1]}),
        (PairMap([(1, "int"), (True, "bool")]), [[1, "int"], [True, "bool"]]),
    ],
)
def test_values_as_json(value: object, expected: object) -> None:
    assert plain(value) == expected
    json.dumps(plain(value), allow_nan=False)


def test_message_kinds_in_json() -> None:
    kinds = {
        "data": Message(body=b"x"),
        "value": Message(body="x"),
        "sequence": Message(body=AmqpSequence([1])),
    }
    for kind, message in kinds.items():
        assert json.loads(as_json(message))["body-type"] == kind
