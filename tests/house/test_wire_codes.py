"""Constructor codes and descriptors are written once: no other file has one as a number or byte."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferrymq_codec import codes
from ferrymq_types import descriptors

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("runtime", "broker", "pipeline", "codegen", "bench")
TABLES = (
    ROOT / "runtime" / "ferrymq_codec" / "codes.py",
    # Letters of AMQP 0-9-1, some of which are the same numbers.
    ROOT / "runtime" / "ferrymq_codec_0_9_1" / "letters.py",
)
FILES = sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py") if p not in TABLES)
# Zero, the constructor of a described value, has too many other meanings to be looked for.
CODES = frozenset(codes.TYPE_NAMES)
BYTES = re.compile("(b|br|rb)[\"']", re.IGNORECASE)
DESCRIPTORS = frozenset(v for v in vars(descriptors).values() if isinstance(v, int))


def written(text: str) -> Iterator[tuple[int, str]]:
    """The line and the text of each number in hex and each byte string that is such a code."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NUMBER and token.string[:2].lower() == "0x":
            if int(token.string, 16) in CODES | DESCRIPTORS:
                yield token.start[0], token.string
        elif token.type == tokenize.STRING and BYTES.match(token.string) and "\\x" in token.string:
            value = ast.literal_eval(token.string)
            if isinstance(value, bytes) and any(f"\\x{code:02x}" in token.string for code in CODES):
                yield token.start[0], token.string


def test_no_file_has_a_code_as_a_literal() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {literal}"
        for path in FILES
        for line, literal in written(path.read_text("utf-8"))
    ]
    assert not found, "take it from ferrymq_codec.codes or ferrymq_types.descriptors:\n" + (
        "\n".join(found)
    )


@pytest.mark.parametrize(
    "line",
    ["code == 0xA1", "0x14", "0x468C_0000_0004", r'HEAD = b"\x00\x53\x70"', r'rb"[\xa3]"'],
)
def test_literals_that_are_found(line: str) -> None:
    assert [number for number, _ in written(f"\n{line}\n")] == [2]


@pytest.mark.parametrize("line", ["0xFF", "83", r'b"AMQP\x00\x01"', r'"\xa3"', "# 0x53", '"0x53"'])
def test_literals_that_are_none(line: str) -> None:
    assert not list(written(f"{line}\n"))


@pytest.mark.spec("1.6")
def test_the_table_of_the_codec_is_that_of_the_specification() -> None:
    tree = ET.parse(ROOT / "spec" / "types.xml")
    space = {"": "http://www.amqp.org/schema/amqp.xsd"}
    wanted = {
        int(encoding.attrib["code"], 16): type_.attrib["name"]
        for type_ in tree.iterfind(".//type", space)
        for encoding in type_.iterfind("encoding", space)
    }
    assert wanted == codes.TYPE_NAMES
    groups = ("FIXED_", "VARIABLE_", "COMPOUND_", "ARRAY_")
    named = [
        value
        for name, value in vars(codes).items()
        if isinstance(value, int) and not name.startswith(groups) and name != "WIDER"
    ]
    assert sorted(named) == sorted([codes.DESCRIBED, *wanted])
