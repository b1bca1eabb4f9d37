"""`diff` lists what changed on the wire and says what breaks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = Path("/usr/share/amqp/specs/1-0")

OLD = """
<type name="a" class="composite" source="list" provides="p, q">
  <descriptor name="case:a:list" code="0x1:0x1"/>
  <field name="one" type="uint" mandatory="true"/>
  <field name="two" type="alias" default="5"/>
  <field name="three" type="closed" default="x"/>
  <field name="four" type="*" requires="p2" />
</type>
<type name="alias" class="restricted" source="uint"/>
<type name="closed" class="restricted" source="ubyte">
  <choice name="x" value="0"/><choice name="y" value="1"/>
</type>
<type name="open" class="restricted" source="symbol" provides="p2">
  <choice name="x" value="x"/><choice name="y" value="y"/>
</type>
<type name="tag" class="restricted" source="binary">
  <descriptor name="case:tag:binary" code="0x1:0x2"/>
</type>
<definition name="LIMIT" value="5"/>
<type name="late" class="restricted" source="symbol" provides="r2"/>
"""

# A replacement in OLD, and the change it makes: where, what, old, new and which readers break:
# `o` those of the old spec, `n` those of the new one, `s` the source of a program.
CASES = {
    "nothing": ("", "", []),
    "docs and labels": ('<type name="alias"', '<type label="other" name="alias"', []),
    "descriptor code": ('code="0x1:0x1"', 'code="0x1:0x9"',
        [("a", "descriptor code", "0x00000001:0x00000001", "0x00000001:0x00000009", "on")]),
    "descriptor name": ("case:a:list", "case:b:list",
        [("a", "descriptor name", "case:a:list", "case:b:list", "on")]),
    "no descriptor any more": ('<descriptor name="case:tag:binary" code="0x1:0x2"/>', "",
        [("tag", "descriptor", "case:tag:binary 0x00000001:0x00000002", "", "ons")]),
    "optional field appended": ('requires="p2" />', 'requires="p2"/><field name="n" type="uint"/>',
        [("a.n", "field added", "", "4: uint", "o")]),
    "mandatory field appended": (
        'requires="p2" />', 'requires="p2"/><field name="n" type="uint" mandatory="true"/>',
        [("a.n", "field added", "", "4: uint", "ons")]),
    "last field removed": ('<field name="four" type="*" requires="p2" />', "",
        [("a.four", "field removed", "3: *", "", "ns")]),
    "field renamed": ('name="two"', 'name="zwei"',
        [("a.two", "field renamed", "1: two", "1: zwei", "s")]),
    "field renamed and retyped": ('name="one" type="uint"', 'name="eins" type="ulong"',
        [("a.one", "field renamed", "0: one", "0: eins", "s"),
         ("a.one", "type", "uint", "ulong", "on")]),
    "field inserted": ('<field name="two"', '<field name="new" type="uint"/><field name="two"',
        [("a.two", "field", "1: two", "1: new", "on"),
         ("a.three", "field", "2: three", "2: two", "on"),
         ("a.four", "field", "3: four", "3: three", "on"),
         ("a.four", "field added", "", "4: *", "o")]),
    "field retyped": ('name="one" type="uint"', 'name="one" type="ulong"',
        [("a.one", "type", "uint", "ulong", "on")]),
    "field retyped to another class": ('name="one" type="uint"', 'name="one" type="string"',
        [("a.one", "type", "uint", "string", "ons")]),
    "field retyped to anything": ('name="one" type="uint"', 'name="one" type="*"',
        [("a.one", "type", "uint", "*", "os")]),
    "field retyped to an alias": ('name="one" type="uint"', 'name="one" type="alias"',
        [("a.one", "type", "uint", "alias", "")]),
    "no longer mandatory": ('type="uint" mandatory="true"', 'type="uint"',
        [("a.one", "mandatory", "true", "false", "os")]),
    "several values": ('name="one" type="uint"', 'name="one" type="uint" multiple="true"',
        [("a.one", "multiple", "false", "true", "os")]),
    "other default": ('default="5"', 'default="6"', [("a.two", "default", "5", "6", "on")]),
    "no default": (' default="5"', "", [("a.two", "default", "5", "", "ons")]),
    "default by value": ('default="x"', 'default="0"', []),
    "default in hexadecimal": ('default="5"', 'default="0x5"', []),
    "other requirement, same types": ('requires="p2"', 'requires="r2, p2"',
        [("a.four", "requires", "p2", "p2, r2", "s")]),
    "choice added to a closed type": (
        '<choice name="y" value="1"/>', '<choice name="y" value="1"/><choice name="z" value="2"/>',
        [("closed.z", "choice added", "", "2", "o")]),
    "choice added to an open type": (
        '<choice name="y" value="y"/>', '<choice name="y" value="y"/><choice name="z" value="z"/>',
        [("open.z", "choice added", "", "z", "")]),
    "choice removed": ('<choice name="y" value="1"/>', "",
        [("closed.y", "choice removed", "1", "", "ns")]),
    "choice changed": ('name="y" value="1"', 'name="y" value="3"',
        [("closed.y", "choice", "1", "3", "ons")]),
    "choice renamed": ('name="y" value="1"', 'name="why" value="1"',
        [("closed.y", "choice renamed", "y", "why", "s")]),
    "closed type opened": ('name="closed" class="restricted" source="ubyte"',
        'name="closed" class="restricted" source="ubyte" provides="r"',
        [("closed", "values", "listed", "any", "os"), ("closed", "provides added", "", "r", "")]),
    "capability added": ('provides="p, q"', 'provides="p, q, r"',
        [("a", "provides added", "", "r", "")]),
    "capability removed": ('provides="p, q"', 'provides="p"',
        [("a", "provides removed", "q", "", "s")]),
    "source": ('name="tag" class="restricted" source="binary"',
        'name="tag" class="restricted" source="string"',
        [("tag", "source", "binary", "string", "ons")]),
    "definition": ('value="5"/>', 'value="6"/>', [("case.LIMIT", "definition", "5", "6", "s")]),
    "definition removed": ('<definition name="LIMIT" value="5"/>', "",
        [("case.LIMIT", "definition removed", "5", "", "s")]),
    "definition added": ('<definition name="LIMIT"', '<definition name="M" value="1"/>'
        '<definition name="LIMIT"', [("case.M", "definition added", "", "1", "")]),
    "alias added": ('<type name="alias"', '<type name="more" class="restricted" source="uint"/>'
        '<type name="alias"', [("more", "type added", "", "restricted", "")]),
    "provider added": ('<type name="alias"',
        '<type name="more" class="restricted" source="uint" provides="p2"/><type name="alias"',
        [("more", "type added", "", "restricted", ""),
         ("more", "provides added", "", "p2", "o")]),
    "described type renamed": ('<type name="tag"', '<type name="label"',
        [("tag", "type renamed", "tag", "label", "s")]),
    "described type removed": (
        OLD[OLD.index('<type name="tag"') : OLD.index("<definition")], "",
        [("tag", "type removed", "restricted", "", "s")]),
}  # fmt: skip


def folders(workshop, new: str) -> tuple[str, str]:
    text = '<amqp name="case"><section name="s">{}</section></amqp>'
    workshop.write(text.format(OLD), folder="old")
    workshop.write(text.format(new), folder="new")
    return str(workshop.folder / "old"), str(workshop.folder / "new")


LETTERS = {"o": "old_reads_new", "n": "new_reads_old", "s": "source"}


def row(change: dict[str, str]) -> tuple[str, ...]:
    """A change as the cases have it."""
    broken = "".join(letter for letter, key in LETTERS.items() if change[key])
    return (change["where"], change["what"], change["old"], change["new"], broken)


@pytest.mark.parametrize("name", CASES)
def test_change(workshop, name: str) -> None:
    before, after, expected = CASES[name]
    assert before in OLD
    old, new = folders(workshop, OLD.replace(before, after, 1) if before else OLD)
    result = workshop.run("diff", "--json", "--with", str(workshop.base), old, new)
    assert result.err == ""
    report = json.loads(result.out)
    assert [row(change) for change in report["changes"]] == expected
    breaking = sum(bool({"o", "n"}.intersection(change[4])) for change in expected)
    assert report["breaking"] == breaking
    for letter, key in LETTERS.items():
        assert report[key] == sum(letter in change[4] for change in expected)
    assert result.status == (1 if breaking else 0)


def test_alias_removed(workshop) -> None:
    text = OLD.replace('type="alias"', 'type="uint"').replace(
        '<type name="alias" class="restricted" source="uint"/>', ""
    )
    old, new = folders(workshop, text)
    result = workshop.run("diff", "--with", str(workshop.base), old, new)
    assert result.status == 0
    summary = "2 differences: 0 break old reads new, 0 break new reads old, 1 break the source"
    assert result.out.splitlines()[-1] == summary


def test_encodings(workshop) -> None:
    types = (workshop.base / "types.xml").read_text("utf-8")
    smaller, found = re.subn(r'<encoding[^>]*code="0x52"[^>]*/>', "", types)
    assert found == 1
    workshop.write(smaller, "types.xml", folder="small")
    small = str(workshop.folder / "small")
    removed = workshop.run("diff", "--json", str(workshop.base), small)
    changes = json.loads(removed.out)["changes"]
    assert changes == [
        {
            "where": "uint.0x52",
            "what": "encoding removed",
            "old": "fixed, width 1",
            "new": "",
            "old_reads_new": "",
            "new_reads_old": "refused in this encoding",
            "source": "",
            "breaking": True,
        }
    ]
    added = json.loads(workshop.run("diff", "--json", small, str(workshop.base)).out)["changes"]
    assert [row(change) for change in added] == [
        ("uint.0x52", "encoding added", "", "fixed, width 1", "o")
    ]


def test_table(workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    old, new = folders(
        workshop, OLD.replace('requires="p2" />', 'requires="p2"/><field name="n" type="uint"/>')
    )
    result = workshop.run("diff", "--with", str(workshop.base), old, new)
    assert result.status == 1
    line = next(line for line in result.out.splitlines() if "a.n" in line)
    assert [cell.strip() for cell in line.strip("│┃").split("│")] == [
        *("a.n", "field added", "", "4: uint", "refused when set", "ok", "ok"),
    ]
    summary = "1 differences: 1 break old reads new, 0 break new reads old, 0 break the source"
    assert result.out.splitlines()[-1] == summary


def test_mistake_in_one_of_them(workshop) -> None:
    old, new = folders(workshop, "<typo/>")
    result = workshop.run("diff", "--with", str(workshop.base), old, new)
    assert result.status == 1
    assert result.err.startswith(f"{workshop.folder / 'new' / 'case.xml'}:1: invalid against the")


def test_published_2011_against_ours(workshop) -> None:
    """The specification's later edition gave four fields of header their defaults."""
    if not PUBLISHED.is_dir():
        pytest.skip("Debian package amqp-specs not installed")
    result = workshop.run("diff", "--json", str(PUBLISHED), str(ROOT / "spec"))
    assert result.status == 1
    changes = json.loads(result.out)["changes"]
    assert [row(change) for change in changes] == [
        ("header.durable", "default", "", "false", "ons"),
        ("header.priority", "default", "", "4", "ons"),
        ("header.first-acquirer", "default", "", "false", "ons"),
        ("header.delivery-count", "default", "", "0", "ons"),
    ]
