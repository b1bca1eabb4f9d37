"""Mistakes in definitions of AMQP 0-9-1 are reported as `file:line: what is wrong`, status 1."""

from __future__ import annotations

from pathlib import Path

import pytest

HEAD = '<?xml version="1.0"?>\n<amqp major="0" minor="9" revision="1">\n'
DOMAINS = (
    '<domain name="bit" type="bit"/><domain name="short" type="short"/>'
    '<domain name="shortstr" type="shortstr"/><domain name="longstr" type="longstr"/>'
)
SIDE = '<chassis name="server" implement="MUST"/>'


def method(content: str, attributes: str = 'name="go" index="10"') -> str:
    """A class whose only method has `content`, which begins on line 5."""
    return (
        f'{DOMAINS}<class name="car" handler="channel" index="7">\n'
        f"<method {attributes}>{SIDE}\n{content}</method></class>"
    )


# What is wrong: the definitions, the line of the mistake, the message.
CASES = {
    "invalid against the DTD": ('<domain name="a" kind="b"/>', 3, "invalid against the DTD"),
    "unknown element": ("<type/>", 3, "invalid against the DTD"),
    "no number": ('<constant name="a" value="many"/>', 3, 'value="many" is not a number'),
    "number too large": ('<constant name="a" value="65536"/>', 3, "is not a number from 0"),
    "constant twice": (
        '<constant name="a" value="1"/>\n<constant name="a" value="2"/>',
        4,
        "constant a is already defined at",
    ),
    "another frame": ('<constant name="frame-end" value="7"/>', 3, "the codec writes 206"),
    "domain twice": (
        '<domain name="bit" type="bit"/>\n<domain name="bit" type="bit"/>',
        4,
        "domain bit is already defined at",
    ),
    "replaces nothing": (
        '<domain name="bit" type="bit" replaces="1"/>',
        3,
        "domain bit replaces nothing",
    ),
    "another type": (
        '<domain name="a" type="short"/><domain name="b" type="short"/>\n'
        '<domain name="a" type="bit" replaces="1"/>',
        4,
        "domain a has type bit, not short",
    ),
    "not elementary": ('<domain name="a" type="text"/>', 3, 'type "text", which is not elementary'),
    "length of a number": (
        '<domain name="a" type="short">\n<assert check="length" value="1"/></domain>',
        4,
        "domain a: a short has no length",
    ),
    "length that is no number": (
        '<domain name="a" type="shortstr">\n<assert check="length" value="x"/></domain>',
        4,
        'length "x" is not a number',
    ),
    "regexp of bytes": (
        '<domain name="a" type="longstr">\n<assert check="regexp" value="x"/></domain>',
        4,
        "which match no regexp",
    ),
    "broken regexp": (
        '<domain name="a" type="shortstr">\n<assert check="regexp" value="("/></domain>',
        4,
        '"(" is not a pattern',
    ),
    "unknown check": (
        '<domain name="a" type="shortstr">\n<assert check="enum" value="("/></domain>',
        4,
        "does not know the check enum",
    ),
    "unknown domain": (
        method('<field name="f" domain="huh"/>'),
        5,
        'field car.go.f has domain "huh", an unknown domain',
    ),
    "no domain": (method('<field name="f"/>'), 5, "field f has neither domain nor type"),
    "field twice": (
        method('<field name="f" domain="bit"/>\n<field name="f" domain="bit"/>'),
        6,
        "method car.go has two fields named f",
    ),
    "fields that collide": (
        method('<field name="a-b" domain="bit"/>\n<field name="a_b" domain="bit"/>'),
        6,
        "are both a_b in Python",
    ),
    "field of the base class": (
        method('<field name="encode" domain="bit"/>'),
        5,
        "the generator's own encode are both encode",
    ),
    "field without a name": (method('<field name="1" domain="bit"/>'), 5, "has no name in Python"),
    "quote": (method('<field name="a&quot;b" domain="bit"/>'), 5, "that no name may have"),
    "unknown response": (
        method('<response name="gone"/>'),
        4,
        "method car.go has response gone, an unknown method",
    ),
    "content without properties": (
        method("", 'name="go" index="10" content="1"'),
        4,
        "class car has no properties",
    ),
    "no side": (
        '<class name="car" handler="channel" index="7">\n<method name="a" index="1"/></class>',
        4,
        "no side may receive it",
    ),
    "method twice": (
        f'<class name="car" handler="channel" index="7"><method name="a" index="1">{SIDE}</method>'
        f'\n<method name="a" index="1">{SIDE}</method></class>',
        4,
        "method car.a is already defined at",
    ),
    "index twice": (
        f'<class name="car" handler="channel" index="7"><method name="a" index="1">{SIDE}</method>'
        f'\n<method name="b" index="1">{SIDE}</method></class>',
        4,
        "method car.b has index 1, as a at",
    ),
    "class index twice": (
        '<class name="car" handler="channel" index="7"/>\n'
        '<class name="bus" handler="channel" index="7"/>',
        4,
        "class bus has index 7, as car at",
    ),
    "another class index": (
        '<class name="car" handler="channel" index="7"/>\n'
        '<class name="car" handler="channel" index="8"/>',
        4,
        "class car has index 8 and handler channel, not 7",
    ),
    "module of the output": (
        '<class name="registry" handler="channel" index="7"/>',
        3,
        "the generator's own registry are both registry",
    ),
    "bit as a property": (
        f'{DOMAINS}<class name="car" handler="channel" index="7">\n'
        '<field name="f" domain="bit"/></class>',
        4,
        "a bit has no room in a content header",
    ),
    "too many properties": (
        f'{DOMAINS}<class name="car" handler="channel" index="7">\n'
        + "".join(f'<field name="f{i}" domain="short"/>' for i in range(16))
        + "</class>",
        4,
        "class car has more than 15 properties",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_mistakes_have_a_place(workshop, tmp_path: Path, case: str) -> None:
    text, line, what = CASES[case]
    path = workshop.write(f"{HEAD}{text}\n</amqp>\n")
    out = str(tmp_path / "case_methods")
    result = workshop.run("generate", "--protocol", "0-9-1", "--spec", str(path), "--out", out)
    assert result.status == 1
    lines = result.err.splitlines()
    assert any(found.startswith(f"{path}:{line}: ") and what in found for found in lines), lines
    assert not (tmp_path / "case_methods").exists()


@pytest.mark.parametrize(
    ("head", "what"),
    [
        ('<amqp major="0" minor="8">', "version 0-8-0: the generator knows 0-9-1"),
        ('<amqp xmlns="urn:x" major="0" minor="9">', "not in AMQP's namespace"),
        ("<amqp>", "invalid against the DTD"),
        ("<amqp", "not well-formed XML"),
    ],
)
def test_other_files(workshop, head: str, what: str) -> None:
    path = workshop.write(f"{head}</amqp>")
    result = workshop.run(
        "generate", "--protocol", "0-9-1", "--spec", str(path), "--out", str(workshop.out)
    )
    assert result.status == 1
    assert what in result.err


def test_every_mistake_is_reported_in_one_run(workshop) -> None:
    path = workshop.write(
        f'{HEAD}<constant name="a" value="x"/>\n<domain name="b" type="?"/>\n</amqp>'
    )
    workshop.write(f'{HEAD}<constant name="c" value="y"/></amqp>', "other.xml")
    result = workshop.run(
        "generate", "--protocol", "0-9-1", "--spec", str(path.parent), "--out", str(workshop.out)
    )
    assert [line.partition(": ")[0] for line in result.err.splitlines()] == [
        f"{path}:3",
        f"{path.parent / 'other.xml'}:3",
    ]
