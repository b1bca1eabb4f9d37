"""Packages of AMQP 0-9-1: the one of the project, one with asserts, differences, reference."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from ferrymq_codec import DecodeError, EncodeError
from ferrymq_codegen import amqp_0_9_1
from ferrymq_codegen.specification import SPECIFICATION

CORE = SPECIFICATION / "amqp-0-9-1" / "amqp0-9-1.xml"
EXTENSION = SPECIFICATION / "amqp-0-9-1" / "extensions" / "rabbitmq.xml"
ROOT = Path(__file__).resolve().parents[2]
PAGES = amqp_0_9_1.pages()


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A package from the core alone, whose names must match the specification's pattern."""
    from ferrymq_codegen.cli import main

    folder = tmp_path_factory.mktemp("core")
    arguments = ["--protocol", "0-9-1", "--spec", str(CORE), "--out", str(folder / "core_methods")]
    assert main(["generate", "--no-verify", *arguments]) == 0
    sys.path.insert(0, str(folder))
    yield "core_methods"
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.split(".")[0] == "core_methods"]:
        del sys.modules[name]


def module(package: str, name: str) -> ModuleType:
    return importlib.import_module(f"{package}.{name}")


def test_asserts_are_checked_in_both_directions(core: str) -> None:
    declare = module(core, "queue").QueueDeclare
    assert declare.from_bytes(declare(queue="a-b_c.d:1").to_bytes()).queue == "a-b_c.d:1"
    with pytest.raises(EncodeError, match=r"queue\.declare\.queue: 'a b' does not match"):
        declare(queue="a b").to_bytes()
    with pytest.raises(EncodeError, match=r"queue\.declare\.queue: 128 bytes, not at most 127"):
        declare(queue="a" * 128).to_bytes()
    data = declare(queue="a-b").to_bytes()
    with pytest.raises(DecodeError, match=r"queue\.declare\.queue: 'a\\n' does not match"):
        declare.from_bytes(data.replace(b"\x03a-b", b"\x02a\n"))


def test_the_core_has_no_methods_of_rabbitmq(core: str) -> None:
    names = module(core, "registry").NAMES
    assert "basic.nack" not in names
    assert not hasattr(module(core, "exchange").ExchangeDeclare(), "internal")


def test_the_extension_needs_the_core(workshop) -> None:
    result = workshop.run(
        "generate", "--protocol", "0-9-1", "--spec", str(EXTENSION), "--out", str(workshop.out)
    )
    assert result.status == 1
    assert "domain queue-name replaces nothing" in result.err


EVERYTHING = """<?xml version="1.0"?>
<amqp major="0" minor="9" revision="1">
<domain name="bit" type="bit"/><domain name="octet" type="octet"/>
<domain name="short" type="short"/><domain name="long" type="long"/>
<domain name="longlong" type="longlong"/><domain name="shortstr" type="shortstr"/>
<domain name="longstr" type="longstr"/><domain name="timestamp" type="timestamp"/>
<domain name="table" type="table"/>
<domain name="word" type="shortstr"><assert check="regexp" value="^\\w+$"/></domain>
<class name="all" handler="channel" index="1">
<field name="when" domain="timestamp"/><field name="word" domain="word"/>
<field name="size" domain="longlong"/><field name="raw" domain="longstr"/>
<method name="kinds" index="1" deprecated="1"><chassis name="client" implement="MUST"/>
<field name="a" domain="octet"/><field name="b" domain="short"/><field name="c" domain="long"/>
<field name="d" domain="longlong"/><field name="e" domain="shortstr"/>
<field name="f" domain="longstr"/><field name="g" domain="timestamp"/>
<field name="h" domain="table"/></method>
<method name="reserved" index="2"><chassis name="client" implement="MUST"/>
<field name="a" domain="octet" reserved="1"/><field name="b" domain="short" reserved="1"/>
<field name="c" domain="long" reserved="1"/><field name="d" domain="longlong" reserved="1"/>
<field name="e" domain="shortstr" reserved="1"/><field name="f" domain="longstr" reserved="1"/>
<field name="g" domain="timestamp" reserved="1"/><field name="h" domain="table" reserved="1"/>
<field name="i" domain="bit" reserved="1"/></method>
<method name="bits" index="3"><chassis name="server" implement="MUST"/>
BITS<field name="last" domain="octet"/></method>
</class></amqp>"""
ALL_BITS = "".join(f'<field name="b{i}" domain="bit"/>' for i in range(11))


def test_every_domain_in_every_place(workshop, tmp_path: Path) -> None:
    path = workshop.write(EVERYTHING.replace("BITS", ALL_BITS))
    out = tmp_path / "every_domain"
    result = workshop.run("generate", "--protocol", "0-9-1", "--spec", str(path), "--out", str(out))
    assert (result.status, result.err) == (0, "")
    sys.path.insert(0, str(tmp_path))
    try:
        every = module("every_domain", "all")
        registry = module("every_domain", "registry")
    finally:
        sys.path.remove(str(tmp_path))
    bits = every.AllBits(b0=True, b7=True, b8=True, b10=True, last=9)
    assert bits.to_bytes() == b"\x00\x01\x00\x03\x81\x05\x09"
    assert registry.decode_method(bits.to_bytes()) == bits
    reserved = every.AllReserved().to_bytes()
    assert reserved == b"\x00\x01\x00\x02" + bytes(1 + 2 + 4 + 8 + 1 + 4 + 8 + 4 + 1)
    assert registry.decode_method(reserved) == every.AllReserved()
    kinds = every.AllKinds(a=1, b=2, c=3, d=4, e="e", f=b"f", g=0, h={"k": 1})
    assert kinds.to_bytes()[:12] == b"\x00\x01\x00\x01\x01\x00\x02\x00\x00\x00\x03\x00"
    held = every.AllProperties(word="ok", size=1 << 63, raw=b"raw")
    assert every.AllProperties.from_bytes(held.to_bytes()) == held
    with pytest.raises(EncodeError, match=r"all\.word: 'no way' does not match"):
        every.AllProperties(word="no way").to_bytes()
    with pytest.raises(DecodeError, match=r"all\.word: '' does not match"):
        every.AllProperties.from_bytes(b"\x40\x00\x00")


def changed(workshop, *pairs: tuple[str, str]) -> list[dict[str, str]]:
    """The differences between the core and the core with replacements."""
    text = CORE.read_text("utf-8")
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new, 1)
    path = workshop.write(text)
    result = workshop.run("diff", "--protocol", "0-9-1", "--json", str(CORE), str(path))
    found = json.loads(result.out)
    assert result.status == (1 if found["breaking"] else 0)
    return list(found["changes"])


def test_no_differences(workshop) -> None:
    assert changed(workshop) == []
    assert changed(workshop, ('label="queues', 'label="other queues')) == []


@pytest.mark.parametrize(
    ("old", "new", "where", "what", "effects"),
    [
        ('name="passive"', 'name="quiet"', "exchange.declare.passive", "renamed", "--s"),
        (
            '<field name="active" domain="bit"',
            '<field name="active" domain="short"',
            "channel.flow.active",
            "field's type",
            "ons",
        ),
        (
            '<field name="active" domain="bit"',
            '<field name="more" domain="bit"/><field name="active" domain="bit"',
            "channel.flow",
            "fields",
            "on-",
        ),
        ('index="20" label="asks the peer', 'index="23" label="asks the peer', "channel.flow",
         "index", "on-"),
        ('name="no-consumers" value="313"', 'name="no-consumers" value="314"', "no-consumers",
         "value", "--s"),
        ('value="313" class="soft-error"', 'value="313" class="hard-error"', "no-consumers",
         "class", "on-"),
        ('<field name="reserved" domain="shortstr" label="not used; cluster-id in earlier versions"'
         '/>', "", "basic.reserved", "property removed", "-ns"),
        ('<domain name="path" type="shortstr" label="name of a virtual host">',
         '<domain name="path" type="shortstr"><assert check="length" value="9"/>',
         "connection.open.virtual-host", "asserts", "-n-"),
    ],
)  # fmt: skip
def test_a_difference(workshop, old: str, new: str, where: str, what: str, effects: str) -> None:
    (change,) = changed(workshop, (old, new))
    assert (change["where"], change["what"]) == (where, what)
    keys = ("old_reads_new", "new_reads_old", "source")
    assert "".join(k[0] if change[k] else "-" for k in keys) == effects


def test_rabbitmqs_file_adds_to_the_core(workshop) -> None:
    folder = workshop.folder / "both"
    folder.mkdir()
    for path in (CORE, EXTENSION):
        (folder / path.name).write_bytes(path.read_bytes())
    result = workshop.run("diff", "--protocol", "0-9-1", "--json", str(CORE), str(folder))
    found = {(c["where"], c["what"]) for c in json.loads(result.out)["changes"]}
    assert {
        ("no-route", "constant added"),
        ("confirm", "class added"),
        ("basic.nack", "method added"),
        ("basic.cancel", "received by"),
        ("exchange.declare.reserved-2", "reserved"),
        ("queue.declare.queue", "asserts"),
    } <= found


HEADING = re.compile(r"^## (\S+)$", re.MULTILINE)


def test_every_method_has_its_place_in_the_reference() -> None:
    links = re.findall(r"\[([\w.-]+)\]\((\w+\.md)#([\w-]+)\)", PAGES["index.md"])
    assert len(links) == 64
    for name, page, anchor in links:
        assert name in HEADING.findall(PAGES[page])
        assert anchor == name.replace(".", "")


@pytest.mark.parametrize("page", PAGES)
def test_rows_of_a_table_have_the_cells_of_its_head(page: str) -> None:
    width = 0
    for line in PAGES[page].splitlines():
        cells = len(re.split(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert not (width and cells) or cells == width, line
        width = cells


def test_reference_into_a_folder(workshop, tmp_path: Path) -> None:
    out = tmp_path / "pages"
    result = workshop.run("reference", "--protocol", "0-9-1", "--out", str(out))
    assert result.status == 0
    assert {path.name: path.read_text("utf-8") for path in out.iterdir()} == PAGES
