"""`ferrymq trace FILE`: raw bytes, hex dumps, and what is neither."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ferrymq_broker.cli.app import make_app
from ferrymq_types.transport import Close, Open
from tests.support.script import AMQP_HEADER, SASL_HEADER
from tests.trace.streams import stream

DATA = stream(AMQP_HEADER, Open(container_id="container 41 42 43"), Close())
EXPECTED = [
    "-> header AMQP 1.0.0",
    "-> [0] open(container-id='container 41 42 43')",
    "-> [0] close()",
]


def trace(*arguments: str, data: bytes | None = None) -> tuple[list[str], int, str]:
    done = CliRunner().invoke(make_app(), ["trace", *arguments], input=data)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.stdout.splitlines(), done.exit_code, done.stderr


def rows(data: bytes, size: int = 16) -> list[tuple[int, bytes]]:
    return [(at, data[at : at + size]) for at in range(0, len(data), size)]


def shown(data: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)


DUMPS = {
    "digits": DATA.hex(),
    "digits in lines": "\n".join(part.hex() for _, part in rows(DATA, 30)),
    "hexdump -C": "\n".join(
        f"{at:08x}  {part[:8].hex(' ')}  {part[8:].hex(' ')}".ljust(60) + f"|{shown(part)}|"
        for at, part in rows(DATA)
    )
    + f"\n{len(DATA):08x}\n",
    "xxd": "\n".join(
        f"{at:08x}: {part.hex(' ', -2)}".ljust(51) + f"{shown(part)}" for at, part in rows(DATA)
    ),
}


def test_raw_bytes(tmp_path: Path) -> None:
    file = tmp_path / "capture"
    file.write_bytes(DATA)
    assert trace(str(file)) == (EXPECTED, 0, "")
    assert trace("-", data=DATA) == (EXPECTED, 0, "")
    assert trace("-", "--count", "2", data=DATA)[0] == EXPECTED[:2]


@pytest.mark.parametrize("name", DUMPS)
def test_hex_dumps(name: str) -> None:
    assert trace("-", data=DUMPS[name].encode()) == (EXPECTED, 0, "")


def test_both_directions_of_a_dump() -> None:
    for first, second in (("> ", "< "), ("-> ", "<- "), ("", "\t")):
        text = f"{first}{SASL_HEADER.hex()}\n{second}{SASL_HEADER.hex()}\n{first}{DATA.hex(' ')}\n"
        lines = trace("-", data=text.encode())[0]
        assert lines == ["-> header SASL 1.0.0", "<- header SASL 1.0.0", *EXPECTED]


def test_several_files_are_told_apart_and_one_that_is_missing_stops_none(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for file in (one, two):
        file.write_bytes(DATA)
    lines, status, said = trace(str(one), str(tmp_path / "no\x1b"), str(two), "--json")
    assert [json.loads(line)["connection"] for line in lines] == [str(one)] * 3 + [str(two)] * 3
    assert status == 1
    assert "No such file" in said and "\x1b" not in said


def test_packets_are_refused_with_a_way_to_get_at_their_streams() -> None:
    lines, status, said = trace("-", data=b"\xd4\xc3\xb2\xa1" + bytes(100))
    assert (lines, status) == ([], 1)
    assert "tshark" in said


@pytest.mark.parametrize("arguments", [(), ("x", "--listen", "amqp://h:1"), ("--to", "amqp://h")])
def test_either_files_or_a_proxy(arguments: tuple[str, ...]) -> None:
    assert trace(*arguments)[1] == 2


@pytest.mark.parametrize(
    ("listen", "to", "ca", "reason"),
    [
        ("amqps://127.0.0.1:0", "amqp://h", (), "without TLS"),
        ("amqp://127.0.0.1:0", "amqp://me@h", (), "does not log in"),
        ("amqp://127.0.0.1:0", "amqp://h", ("--ca", "x"), "for amqps:// and wss://"),
        ("amqp://127.0.0.1:0", "amqps://h", ("--ca", "no-such-file"), "no-such-file: No such file"),
    ],
)
def test_what_a_proxy_cannot_do(listen: str, to: str, ca: tuple[str, ...], reason: str) -> None:
    done = CliRunner().invoke(make_app(), ["trace", "--listen", listen, "--to", to, *ca])
    assert isinstance(done.exception, ValueError)
    assert reason in str(done.exception)
