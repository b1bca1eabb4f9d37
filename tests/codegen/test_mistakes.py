"""Every mistake in a spec is reported as `file:line: what is wrong`, with exit status 1."""

from __future__ import annotations

from pathlib import Path

import pytest

DESCRIPTOR = '<descriptor name="case:a:list" code="0x1:0x1"/>'
COMPOSITE = f'<type name="a" class="composite" source="list">{DESCRIPTOR}'

# What is wrong: the types of a spec, the line of the mistake, the message.
CASES = {
    "invalid against the DTD": (
        '<type name="a" class="composite" source="list" colour="red"/>',
        4,
        "invalid against the DTD",
    ),
    "unknown element": ("<typo/>", 4, "invalid against the DTD"),
    "unknown class": ('<type name="a" class="compound"/>', 4, "invalid against the DTD"),
    "unknown source": (
        '<type name="a" class="restricted" source="quint"/>',
        4,
        'type a has source "quint", an unknown type',
    ),
    "unknown field type": (
        f'{COMPOSITE}\n<field name="f" type="quint"/></type>',
        5,
        'field f has type "quint", an unknown type',
    ),
    "field without a type": (f'{COMPOSITE}\n<field name="f"/></type>', 5, "field f has no type"),
    "null field": (f'{COMPOSITE}\n<field name="f" type="null"/></type>', 5, "null is not the type"),
    "missing source of a restricted type": (
        '<type name="a" class="restricted"/>',
        4,
        "restricted type a has no source",
    ),
    "missing source of a composite type": (
        f'<type name="a" class="composite">{DESCRIPTOR}</type>',
        4,
        "composite type a has no source",
    ),
    "composite not of a list": (
        f'<type name="a" class="composite" source="map">{DESCRIPTOR}</type>',
        4,
        'composite type a has source "map", only "list" is possible',
    ),
    "composite without a descriptor": (
        '<type name="a" class="composite" source="list"/>',
        4,
        "composite type a has no descriptor",
    ),
    "two descriptors": (
        f'{COMPOSITE}\n<descriptor name="x" code="0x1:0x2"/></type>',
        5,
        "type a has more than one descriptor",
    ),
    "descriptor without a code": (
        '<type name="a" class="composite" source="list">\n<descriptor name="x"/></type>',
        5,
        "descriptor has no code",
    ),
    "descriptor without a name": (
        '<type name="a" class="composite" source="list">\n<descriptor code="0x1:0x1"/></type>',
        5,
        "descriptor has no name",
    ),
    "malformed descriptor code": (
        '<type name="a" class="composite" source="list">\n'
        '<descriptor name="x" code="0x10"/></type>',
        5,
        'descriptor code "0x10" is not of the form',
    ),
    "descriptor code out of range": (
        '<type name="a" class="composite" source="list">\n'
        '<descriptor name="x" code="0x80000000:0x00000000"/></type>',
        5,
        "out of range",
    ),
    "descriptor name that is no symbol": (
        '<type name="a" class="composite" source="list">\n'
        '<descriptor name="größe" code="0x1:0x1"/></type>',
        5,
        "is not a symbol",
    ),
    "descriptor code used twice": (
        f'{COMPOSITE}</type>\n<type name="b" class="composite" source="list">\n'
        '<descriptor name="x" code="0x1:0x1"/></type>',
        6,
        "descriptor code 0x100000001 is already used by a at ",
    ),
    "descriptor name used twice": (
        f'{COMPOSITE}</type>\n<type name="b" class="composite" source="list">\n'
        '<descriptor name="case:a:list" code="0x1:0x2"/></type>',
        6,
        "descriptor name case:a:list is already used by a at ",
    ),
    "encoding code used twice": (
        '<type name="decimal32" class="primitive">\n'
        '<encoding code="0x52" category="fixed" width="1"/></type>',
        5,
        "encoding code 0x52 is already used by uint at ",
    ),
    "encoding of the wrong width": (
        '<type name="a" class="primitive">\n'
        '<encoding code="0x5f" category="fixed" width="2"/></type>',
        5,
        "encoding code 0x5f means fixed of width 1, not fixed of width 2",
    ),
    "encoding that is no constructor": (
        '<type name="a" class="primitive">\n'
        '<encoding code="0x1f" category="fixed" width="2"/></type>',
        5,
        "encoding code 0x1f is not a constructor",
    ),
    "encoding code that is no number": (
        '<type name="a" class="primitive">\n'
        '<encoding code="4_0" category="fixed" width="1"/></type>',
        5,
        'code="4_0" is not a number from 0 to 255',
    ),
    "encoding without a width": (
        '<type name="a" class="primitive">\n<encoding code="0x5f" category="fixed"/></type>',
        5,
        "encoding has no width",
    ),
    "unknown primitive": (
        '<type name="a" class="primitive">\n'
        '<encoding code="0x5f" category="fixed" width="1"/></type>',
        4,
        "primitive type a is not one the codec implements",
    ),
    "primitive without an encoding": (
        '<type name="a" class="primitive"/>',
        4,
        "primitive type a has no encoding",
    ),
    "union": ('<type name="a" class="union"/>', 4, "type a: class union is reserved"),
    "choice in a composite": (
        f'{COMPOSITE}\n<choice name="c" value="1"/></type>',
        5,
        "a composite type cannot have a choice",
    ),
    "field in a restricted type": (
        '<type name="a" class="restricted" source="uint">\n<field name="f" type="uint"/></type>',
        5,
        "a restricted type cannot have a field",
    ),
    "default out of range": (
        f'{COMPOSITE}\n<field name="f" type="ubyte" default="256"/></type>',
        5,
        "field f: default: ubyte cannot hold 256",
    ),
    "default of the wrong kind": (
        f'{COMPOSITE}\n<field name="f" type="uint" default="many"/></type>',
        5,
        'field f: default: "many" is not an integer',
    ),
    "default that is no boolean": (
        f'{COMPOSITE}\n<field name="f" type="boolean" default="1"/></type>',
        5,
        'field f: default: "1" is not a boolean',
    ),
    "default that is no symbol": (
        f'{COMPOSITE}\n<field name="f" type="symbol" default="ü"/></type>',
        5,
        "field f: default: symbol cannot hold",
    ),
    "default that is no character": (
        f'{COMPOSITE}\n<field name="f" type="char" default="ab"/></type>',
        5,
        "is not one character",
    ),
    "default that is no uuid": (
        f'{COMPOSITE}\n<field name="f" type="uuid" default="1"/></type>',
        5,
        "field f: default: uuid cannot hold",
    ),
    "default: float too large": (
        f'{COMPOSITE}\n<field name="f" type="float" default="1e39"/></type>',
        5,
        "field f: default: float cannot hold 1e39",
    ),
    "default: float that would be zero": (
        f'{COMPOSITE}\n<field name="f" type="float" default="1e-50"/></type>',
        5,
        "field f: default: float cannot hold 1e-50",
    ),
    "default: double too large": (
        f'{COMPOSITE}\n<field name="f" type="double" default="1e309"/></type>',
        5,
        "field f: default: double cannot hold 1e309",
    ),
    "default: double that would be zero": (
        f'{COMPOSITE}\n<field name="f" type="double" default="-1e-400"/></type>',
        5,
        "field f: default: double cannot hold -1e-400",
    ),
    "default: double that is no number": (
        f'{COMPOSITE}\n<field name="f" type="double" default="inf"/></type>',
        5,
        'field f: default: "inf" is not a number',
    ),
    "default: double with an underscore": (
        f'{COMPOSITE}\n<field name="f" type="double" default="1_0"/></type>',
        5,
        'field f: default: "1_0" is not a number',
    ),
    "default: decimal32 with eight digits": (
        f'{COMPOSITE}\n<field name="f" type="decimal32" default="1.2345678"/></type>',
        5,
        "field f: default: decimal32 cannot hold 1.2345678",
    ),
    "default: decimal64 too large": (
        f'{COMPOSITE}\n<field name="f" type="decimal64" default="1e386"/></type>',
        5,
        "field f: default: decimal64 cannot hold 1e386",
    ),
    "default: decimal128 too small": (
        f'{COMPOSITE}\n<field name="f" type="decimal128" default="1e-6177"/></type>',
        5,
        "field f: default: decimal128 cannot hold 1e-6177",
    ),
    "default: decimal that is no number": (
        f'{COMPOSITE}\n<field name="f" type="decimal64" default="sNaN"/></type>',
        5,
        'field f: default: "sNaN" is not a number',
    ),
    "default: number of too many digits": (
        f'{COMPOSITE}\n<field name="f" type="uint" default="{"9" * 5000}"/></type>',
        5,
        "is not an integer",
    ),
    "default of a described type": (
        '<type name="t" class="restricted" source="symbol">'
        '<descriptor name="x" code="0x1:0x2"/></type>\n'
        f'{COMPOSITE}<field name="f" type="t" default="x"/></type>',
        5,
        "field f: default: a value of type t carries a descriptor",
    ),
    "choice that a float cannot hold": (
        '<type name="a" class="restricted" source="float">\n<choice name="c" value="1e39"/></type>',
        5,
        "choice c of type a: float cannot hold 1e39",
    ),
    "choices that a float cannot tell apart": (
        '<type name="a" class="restricted" source="float"><choice name="c" value="0.1"/>\n'
        '<choice name="d" value="0.100000001"/></type>',
        5,
        "type a has two choices of value 0.100000001",
    ),
    "default of a map": (
        f'{COMPOSITE}\n<field name="f" type="map" default="x"/></type>',
        5,
        "a value of type map cannot be written in the XML",
    ),
    "default of anything": (
        f'{COMPOSITE}\n<field name="f" type="*" default="x"/></type>',
        5,
        "only values of a primitive type can be listed",
    ),
    "default that is no choice": (
        '<type name="c" class="restricted" source="uint"><choice name="one" value="1"/></type>\n'
        f'{COMPOSITE}<field name="f" type="c" default="two"/></type>',
        5,
        'default "two" is not a choice of type c',
    ),
    "default of several values": (
        f'{COMPOSITE}\n<field name="f" type="uint" multiple="true" default="1"/></type>',
        5,
        "cannot have a default",
    ),
    "several values of anything": (
        f'{COMPOSITE}\n<field name="f" type="*" multiple="true"/></type>',
        5,
        "multiple values need one type",
    ),
    "choice out of range": (
        '<type name="a" class="restricted" source="ubyte">\n<choice name="c" value="-1"/></type>',
        5,
        "choice c of type a: ubyte cannot hold -1",
    ),
    "choice of a map": (
        '<type name="a" class="restricted" source="map">\n<choice name="c" value="x"/></type>',
        5,
        "a value of type map cannot be written in the XML",
    ),
    "choice twice by name": (
        '<type name="a" class="restricted" source="uint">\n'
        '<choice name="c" value="1"/>\n<choice name="c" value="2"/></type>',
        6,
        "type a has two choices named c",
    ),
    "choice twice by value": (
        '<type name="a" class="restricted" source="uint">\n'
        '<choice name="c" value="1"/>\n<choice name="d" value="0x1"/></type>',
        6,
        "type a has two choices of value 0x1",
    ),
    "restricting a described type": (
        f'{COMPOSITE}</type>\n<type name="b" class="restricted" source="a"/>',
        5,
        "type b has source a, which carries a descriptor itself",
    ),
    "restricting choices": (
        '<type name="a" class="restricted" source="uint"><choice name="c" value="1"/></type>\n'
        '<type name="b" class="restricted" source="a"/>',
        5,
        "type b has source a, which lists choices itself",
    ),
    "restricting null": (
        '<type name="a" class="restricted" source="null"/>',
        4,
        "null has no values to restrict",
    ),
    "requires nothing": (
        f'{COMPOSITE}\n<field name="f" type="*" requires="wings"/></type>',
        5,
        'field f requires "wings", which no type provides',
    ),
    "bad flag": (
        f'{COMPOSITE}\n<field name="f" type="uint" mandatory="yes"/></type>',
        5,
        'mandatory="yes" is not true or false',
    ),
    "type twice": (
        '<type name="a" class="restricted" source="uint"/>\n'
        '<type name="a" class="restricted" source="int"/>',
        5,
        "type a is already defined at ",
    ),
    "field twice": (
        f'{COMPOSITE}<field name="f" type="uint"/>\n<field name="f" type="int"/></type>',
        5,
        "type a has two fields named f",
    ),
    "definition twice": (
        '<definition name="A" value="1"/>\n<definition name="A" value="2"/>',
        5,
        "definition A is already defined",
    ),
    "type names that collide": (
        '<type name="a-b" class="restricted" source="uint"/>\n'
        '<type name="a:b" class="restricted" source="uint"/>',
        5,
        "type a:b and type a-b are both AB in Python",
    ),
    "type name of the generator's": (
        '<type name="composite" class="restricted" source="uint"/>',
        4,
        "the generator's own Composite are both Composite",
    ),
    "function name of the generator's": (
        '<type name="value" class="composite" source="list">'
        '<descriptor name="x" code="0x1:0x1"/></type>',
        4,
        "are both read_value in Python",
    ),
    "definition called as an encoding": (
        '<definition name="CODE-UINT" value="1"/>\n<type name="uint" class="primitive">\n'
        '<encoding code="0x5f" category="fixed" width="1"/></type>',
        6,
        "an encoding of type uint and definition CODE-UINT are both CODE_UINT in Python",
    ),
    "field names that collide": (
        f'{COMPOSITE}<field name="a-b" type="uint"/>\n<field name="a_b" type="uint"/></type>',
        5,
        "field a_b of type a and field a-b of type a are both a_b in Python",
    ),
    "choice names that collide": (
        '<type name="a" class="restricted" source="uint"><choice name="x-y" value="1"/>\n'
        '<choice name="X.Y" value="2"/></type>',
        5,
        "are both X_Y in Python",
    ),
    "capability names that collide": (
        '<type name="a" class="restricted" source="uint" provides="x-y"/>\n'
        '<type name="b" class="restricted" source="uint" provides="x:y"/>',
        5,
        "capability x:y and capability x-y are both XY in Python",
    ),
    "name that Python cannot take": (
        '<type name="1st" class="restricted" source="uint"/>',
        4,
        'type 1st has no name in Python: "1st"',
    ),
    "empty name": (
        f'{COMPOSITE}\n<field name="-" type="uint"/></type>',
        5,
        'field - of type a has no name in Python: ""',
    ),
    "source cycle": (
        '<type name="a" class="restricted" source="b"/>\n'
        '<type name="b" class="restricted" source="a"/>',
        4,
        "cycle of sources: a → b → a",
    ),
    "type that contains itself": (
        f'{COMPOSITE}<field name="f" type="b"/></type>\n'
        '<type name="b" class="composite" source="list" provides="p">\n'
        '<descriptor name="x" code="0x1:0x2"/><field name="f" type="*" requires="q"/></type>\n'
        '<type name="c" class="composite" source="list" provides="q">\n'
        '<descriptor name="y" code="0x1:0x3"/><field name="f" type="*" requires="p"/></type>',
        5,
        "type b contains itself: b → c → b",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_mistake_is_reported_with_file_and_line(workshop, name: str) -> None:
    text, line, message = CASES[name]
    path = workshop.types(text)
    result = workshop.generate("--no-verify")
    assert result.status == 1
    reports = result.err.splitlines()
    wanted = [r for r in reports if r.startswith(f"{path}:{line}: ") and message in r]
    assert wanted, result.err
    assert all(report.startswith(str(workshop.folder)) for report in reports)
    assert "Traceback" not in result.err
    assert not workshop.out.exists()


def test_cycle_of_one(workshop) -> None:
    path = workshop.types('<type name="a" class="restricted" source="a"/>')
    result = workshop.generate()
    assert result.err == f"{path}:4: cycle of sources: a → a\n"


def test_every_mistake_is_collected_over_files(workshop) -> None:
    one = workshop.types('<type name="a" class="restricted" source="quint"/>', "one.xml")
    text = '<type name="b" class="restricted"/>\n<type name="c" class="restricted" source="x"/>'
    two = workshop.types(text, "two.xml")
    workshop.write(two.read_text("utf-8").replace('name="case"', 'name="two"'), "two.xml")
    result = workshop.generate()
    assert result.status == 1
    assert result.err.splitlines() == [
        f'{one}:4: type a has source "quint", an unknown type',
        f"{two}:4: restricted type b has no source",
        f'{two}:5: type c has source "x", an unknown type',
    ]


@pytest.mark.parametrize(
    ("hiding", "message"),
    [
        (
            '<type name="a" class="composite" source="list"><descriptor code="0x1:0x1"/></type>',
            "no name",
        ),
        ('<type name="a" class="composite" source="list"/>', "no descriptor"),
        (f'{COMPOSITE}<field name="f"/></type>', "no type"),
        (f'{COMPOSITE}<field name="f" type="quint"/></type>', "an unknown type"),
        (f'{COMPOSITE}<field name="f" type="uint" mandatory="yes"/></type>', "true or false"),
        ('<type name="a" class="restricted" source="a"/>', "cycle of sources"),
        (
            '<type name="a" class="primitive">'
            '<encoding name="x" code="0x50" category="fixed"/></type>',
            "no width",
        ),
    ],
)
def test_no_mistake_hides_those_of_other_types(workshop, hiding: str, message: str) -> None:
    others = """
<type name="b" class="restricted" source="ubyte"><choice name="x" value="256"/></type>
<type name="c" class="composite" source="list"><descriptor name="c" code="0x1:0x2"/>
<field name="f" type="boolean" default="maybe"/></type>
<type name="d" class="composite" source="list"><descriptor name="d" code="0x1:0x3"/>
<field name="f" type="e" mandatory="true"/></type>
<type name="e" class="composite" source="list"><descriptor name="e" code="0x1:0x4"/>
<field name="f" type="d" mandatory="true"/></type>
<type name="g" class="restricted" source="quint"/>"""
    workshop.types(hiding + others)
    result = workshop.generate("--no-verify")
    assert message in result.err
    for wanted in (":5: choice x", ":7: field f: default", ":8: type d contains", ":12: type g"):
        assert wanted in result.err


def test_two_parts_of_one_name(workshop) -> None:
    workshop.types("", "one.xml")
    two = workshop.types("", "two.xml")
    result = workshop.generate()
    assert result.status == 1
    assert result.err.startswith(f"{two}:2: part case is already defined at ")


@pytest.mark.parametrize("name", ["unions", "registry", "descriptors"])
def test_part_that_would_replace_a_module_of_the_output(workshop, name: str) -> None:
    path = workshop.write(f'<amqp name="{name}"/>')
    result = workshop.generate()
    assert result.err.startswith(f"{path}:1: part {name} and the generator's own {name}")


def test_parts_that_need_each_other_to_load(workshop) -> None:
    part = (
        '<amqp name="{0}"><section name="s"><type name="{0}" class="composite" source="list">'
        '<descriptor name="{0}" code="0x1:{1}"/><field name="f" type="{2}" mandatory="true"/>'
        '</type><type name="x-{0}" class="restricted" source="uint"><choice name="c" value="1"/>'
        "</type></section></amqp>"
    )
    one = workshop.write(part.format("one", 1, "x-two"), "one.xml")
    workshop.write(part.format("two", 2, "x-one"), "two.xml")
    result = workshop.generate()
    assert result.status == 1
    assert result.err.startswith(f"{one}:1: parts cannot be loaded before each other: one needs")


def test_not_well_formed(workshop) -> None:
    path = workshop.write('<amqp name="case">\n<section>\n</amqp>')
    result = workshop.generate()
    assert result.status == 1
    assert result.err.startswith(f"{path}:3: not well-formed XML: ")


def test_empty_file(workshop) -> None:
    path = workshop.write("")
    result = workshop.generate()
    assert result.status == 1
    assert result.err.startswith(f"{path}")
    assert "not well-formed XML" in result.err


def test_foreign_namespace(workshop) -> None:
    path = workshop.write('<amqp name="case" xmlns="urn:x"/>')
    result = workshop.generate()
    assert result.err.startswith(f"{path}:1: element amqp is not in AMQP's namespace")


def test_folders(workshop, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    result = workshop.run("generate", "--spec", str(missing), "--out", str(workshop.out))
    assert (result.status, result.err) == (1, f"{missing}: no such folder\n")
    missing.mkdir()
    result = workshop.run("generate", "--spec", str(missing), "--out", str(workshop.out))
    assert (result.status, result.err) == (1, f"{missing}: holds no .xml file\n")


def test_unreadable_file(workshop) -> None:
    (workshop.spec / "case.xml").mkdir()
    result = workshop.generate()
    assert result.status == 1
    assert result.err == f"{workshop.spec / 'case.xml'}: cannot be read: Is a directory\n"


def test_dtd(workshop, tmp_path: Path) -> None:
    workshop.types("")
    dtd = tmp_path / "x.dtd"
    result = workshop.generate("--dtd", str(dtd))
    assert (result.status, result.err) == (
        1,
        f"{dtd}: cannot read the DTD: No such file or directory\n",
    )
    dtd.write_text("<!ELEMENT", "utf-8")
    result = workshop.generate("--dtd", str(dtd))
    assert result.status == 1
    assert result.err.startswith(f"{dtd}: not a DTD: ")


def test_output_that_cannot_be_imported_by_name(workshop, tmp_path: Path) -> None:
    workshop.types("")
    result = workshop.generate("--out", str(tmp_path / "my-types"))
    assert result.status == 1
    assert '"my-types" cannot be imported' in result.err
