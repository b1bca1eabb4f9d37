"""Our files against those the AMQP working group published in 2011, where Debian has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from lxml import etree

PUBLISHED = Path("/usr/share/amqp/specs/1-0")
PARTS = ("types", "transport", "messaging", "transactions", "security")

# Attributes for the reader only; all others decide what is on the wire.
PROSE = {"label", "title"}

HEADER_DEFAULTS = [
    "type header/field durable: default 'false', 2011 none",
    "type header/field priority: default '4', 2011 none",
    "type header/field first-acquirer: default 'false', 2011 none",
    "type header/field delivery-count: default '0', 2011 none",
]

pytestmark = pytest.mark.skipif(
    not PUBLISHED.is_dir(), reason="Debian package amqp-specs not installed"
)

Entry = tuple[str, dict[str, str]]


def published(part: str) -> etree._Element:
    return etree.parse(str(PUBLISHED / f"{part}.bare.xml")).getroot()


def entries(root: etree._Element) -> list[Entry]:
    """Each defining element in document order: its path of names and its wire attributes."""
    found: list[Entry] = []
    for element in root.iter(etree.Element):
        tag = etree.QName(element).localname
        if tag in ("doc", "p") or (parent := element.getparent()) is None:
            continue
        path = f"{tag} {element.get('name', '')}"
        if tag not in ("section", "type", "definition"):
            path = f"type {parent.get('name')}/{path}"
        found.append((path, {k: v for k, v in element.attrib.items() if k not in PROSE}))
    return found


def differences(ours: etree._Element, theirs: etree._Element) -> list[str]:
    mine, other = entries(ours), entries(theirs)
    assert [path for path, _ in mine] == [path for path, _ in other]
    return [
        (
            f"{path}: {key} {a[key]!r}, 2011 {b.get(key, 'none')}"
            if key in a
            else f"{path}: {key} none, 2011 {b[key]!r}"
        )
        for (path, a), (_, b) in zip(mine, other, strict=True)
        for key in sorted(a.keys() | b.keys())
        if a.get(key) != b.get(key)
    ]


@pytest.mark.parametrize("part", PARTS)
def test_only_the_header_defaults_differ(spec_dir: Path, part: str) -> None:
    ours = etree.parse(str(spec_dir / f"{part}.xml")).getroot()
    expected = HEADER_DEFAULTS if part == "messaging" else []
    assert differences(ours, published(part)) == expected


def test_the_comparison_sees_a_change() -> None:
    changed = published("transport")
    field = changed.find(".//{*}field[@name='idle-time-out']")
    assert field is not None
    field.set("type", "seconds")
    assert differences(changed, published("transport")) == [
        "type open/field idle-time-out: type 'seconds', 2011 milliseconds"
    ]


@pytest.mark.parametrize("part", [*PARTS, "index"])
def test_dtd_takes_the_published_file_as_it_is(dtd: etree.DTD, part: str) -> None:
    assert dtd.validate(published(part)), dtd.error_log
