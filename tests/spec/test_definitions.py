"""The definition files hold all of AMQP 1.0, well formed and documented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lxml import etree

NS = "http://www.amqp.org/schema/amqp.xsd"
CORE = ("types", "transport", "messaging", "transactions", "security")

TYPES = {
    "types": """
        null boolean ubyte ushort uint ulong byte short int long float double decimal32 decimal64
        decimal128 char timestamp uuid binary string symbol list map array
    """,
    "transport": """
        open begin attach flow transfer disposition detach end close role sender-settle-mode
        receiver-settle-mode handle seconds milliseconds delivery-tag delivery-number
        transfer-number sequence-no message-format ietf-language-tag fields error amqp-error
        connection-error session-error link-error
    """,
    "messaging": """
        header delivery-annotations message-annotations properties application-properties data
        amqp-sequence amqp-value footer annotations message-id-ulong message-id-uuid
        message-id-binary message-id-string address-string received accepted rejected released
        modified source target terminus-durability terminus-expiry-policy std-dist-mode filter-set
        node-properties delete-on-close delete-on-no-links delete-on-no-messages
        delete-on-no-links-or-messages
    """,
    "transactions": """
        coordinator declare discharge transaction-id declared transactional-state txn-capability
        transaction-error
    """,
    "security": """
        sasl-mechanisms sasl-init sasl-challenge sasl-response sasl-outcome sasl-code
    """,
    "extensions/filters": """
        legacy-amqp-direct-binding legacy-amqp-topic-binding legacy-amqp-headers-binding
        no-local-filter selector-filter
    """,
}
COUNTS = {"types": 24, "transport": 27, "messaging": 31, "transactions": 8, "security": 6}

DEFINITIONS = {
    "types": {},
    "transport": {
        "PORT": "5672",
        "SECURE-PORT": "5671",
        "MAJOR": "1",
        "MINOR": "0",
        "REVISION": "0",
        "MIN-MAX-FRAME-SIZE": "512",
    },
    "messaging": {"MESSAGE-FORMAT": "0"},
    "transactions": {},
    "security": {
        "TLS-MAJOR": "1",
        "TLS-MINOR": "0",
        "TLS-REVISION": "0",
        "SASL-MAJOR": "1",
        "SASL-MINOR": "0",
        "SASL-REVISION": "0",
    },
    "extensions/filters": {
        "SQL-FILTER": "0x120",
        "PROPERTIES-FILTER": "0x173",
        "APPLICATION-PROPERTIES-FILTER": "0x174",
    },
}

# Where each descriptor of the core lies in the numeric domain 0.
CODES = {
    "open": 0x10,
    "begin": 0x11,
    "attach": 0x12,
    "flow": 0x13,
    "transfer": 0x14,
    "disposition": 0x15,
    "detach": 0x16,
    "end": 0x17,
    "close": 0x18,
    "error": 0x1D,
    "received": 0x23,
    "accepted": 0x24,
    "rejected": 0x25,
    "released": 0x26,
    "modified": 0x27,
    "source": 0x28,
    "target": 0x29,
    "delete-on-close": 0x2B,
    "delete-on-no-links": 0x2C,
    "delete-on-no-messages": 0x2D,
    "delete-on-no-links-or-messages": 0x2E,
    "coordinator": 0x30,
    "declare": 0x31,
    "discharge": 0x32,
    "declared": 0x33,
    "transactional-state": 0x34,
    "sasl-mechanisms": 0x40,
    "sasl-init": 0x41,
    "sasl-challenge": 0x42,
    "sasl-response": 0x43,
    "sasl-outcome": 0x44,
    "header": 0x70,
    "delivery-annotations": 0x71,
    "message-annotations": 0x72,
    "properties": 0x73,
    "application-properties": 0x74,
    "data": 0x75,
    "amqp-sequence": 0x76,
    "amqp-value": 0x77,
    "footer": 0x78,
}
FILTER_CODES = {
    "legacy-amqp-direct-binding": 0x0000468C_00000000,
    "legacy-amqp-topic-binding": 0x0000468C_00000001,
    "legacy-amqp-headers-binding": 0x0000468C_00000002,
    "no-local-filter": 0x0000468C_00000003,
    "selector-filter": 0x0000468C_00000004,
}

REFERENCE = re.compile(
    r"\((AMQP 1\.0|Apache filters|AMQP Filter Expressions) §\d+(\.\d+)*(, §\d+(\.\d+)*)*\)$"
)


def parse(spec_dir: Path, part: str) -> etree._Element:
    return etree.parse(str(spec_dir / f"{part}.xml")).getroot()


def all_of(root: etree._Element, tag: str) -> list[etree._Element]:
    return list(root.iter(f"{{{NS}}}{tag}"))


def owner(descriptor: etree._Element) -> etree._Element:
    type_ = descriptor.getparent()
    assert type_ is not None
    return type_


def doc_text(element: etree._Element) -> str:
    """The element's own documentation, white space collapsed; empty when there is none."""
    paragraphs = element.findall(f"{{{NS}}}doc/{{{NS}}}p")
    return " ".join(" ".join("".join(p.itertext()).split()) for p in paragraphs)


def code_of(descriptor: etree._Element) -> int:
    domain, number = descriptor.attrib["code"].split(":")
    return int(domain, 16) << 32 | int(number, 16)


def test_every_file_in_the_folder_is_known(spec_dir: Path) -> None:
    found = {
        path.relative_to(spec_dir).with_suffix("").as_posix() for path in spec_dir.rglob("*.xml")
    }
    # The files of AMQP 0-9-1 have another schema and their own test.
    found -= {name for name in found if name.startswith("amqp-0-9-1/")}
    assert found == set(TYPES)


@pytest.mark.parametrize("part", TYPES)
def test_file_is_valid_against_the_dtd(spec_dir: Path, dtd: etree.DTD, part: str) -> None:
    root = parse(spec_dir, part)
    assert dtd.validate(root), dtd.error_log
    assert root.tag == f"{{{NS}}}amqp"
    assert root.get("name") == part.rpartition("/")[2]


@pytest.mark.parametrize("part", TYPES)
def test_doctype_leads_to_the_dtd(spec_dir: Path, part: str) -> None:
    path = spec_dir / f"{part}.xml"
    parser = etree.XMLParser(dtd_validation=True, no_network=True)
    tree = etree.parse(str(path), parser)
    assert tree.docinfo.system_url is not None
    assert (path.parent / tree.docinfo.system_url).resolve() == spec_dir / "amqp.dtd"


def test_dtd_refuses_what_it_should(dtd: etree.DTD) -> None:
    type_ = f'<amqp xmlns="{NS}" name="x"><section name="s">%s</section></amqp>'
    assert dtd.validate(etree.fromstring(type_ % '<type name="t" class="union"/>'))
    assert not dtd.validate(etree.fromstring(type_ % '<type name="t" class="record"/>'))
    assert not dtd.validate(etree.fromstring(type_ % '<type class="primitive"/>'))
    assert not dtd.validate(etree.fromstring(type_ % '<field name="f" type="uint"/>'))


@pytest.mark.parametrize("part", TYPES)
def test_types_are_exactly_those_of_the_specification(spec_dir: Path, part: str) -> None:
    names = [element.attrib["name"] for element in all_of(parse(spec_dir, part), "type")]
    assert names == TYPES[part].split()
    if part in COUNTS:
        assert len(names) == COUNTS[part]


def test_the_core_has_96_types_of_distinct_names(spec_dir: Path) -> None:
    names = [e.attrib["name"] for part in CORE for e in all_of(parse(spec_dir, part), "type")]
    assert len(names) == len(set(names)) == 96


@pytest.mark.parametrize("part", TYPES)
def test_definitions_are_exactly_those_of_the_specification(spec_dir: Path, part: str) -> None:
    found = all_of(parse(spec_dir, part), "definition")
    assert {e.attrib["name"]: e.attrib["value"] for e in found} == DEFINITIONS[part]
    assert len(found) == len(DEFINITIONS[part])


@pytest.mark.parametrize("part", TYPES)
def test_labels_are_there(spec_dir: Path, part: str) -> None:
    root = parse(spec_dir, part)
    bare = [
        f"{tag} {element.get('name')}"
        for tag in ("amqp", "section", "type", "field", "definition", "encoding")
        for element in all_of(root, tag)
        if not element.get("label")
    ]
    assert bare == []


@pytest.mark.parametrize("part", TYPES)
def test_docs_name_their_section(spec_dir: Path, part: str) -> None:
    root = parse(spec_dir, part)
    wrong = [
        f"{tag} {element.get('name')}: {doc_text(element)!r}"
        for tag in ("type", "field", "definition")
        for element in all_of(root, tag)
        if not REFERENCE.search(doc_text(element))
    ]
    assert wrong == []


@pytest.mark.parametrize("part", TYPES)
def test_fields_name_the_section_of_their_type_first(spec_dir: Path, part: str) -> None:
    for type_ in all_of(parse(spec_dir, part), "type"):
        (own,) = re.findall(r"\([^()§]*§([\d.]+)[^()]*\)$", doc_text(type_))
        for field in all_of(type_, "field"):
            (first,) = re.findall(r"\([^()§]*§([\d.]+)[^()]*\)$", doc_text(field))
            assert first == own, f"{type_.get('name')}.{field.get('name')}"


@pytest.mark.parametrize("part", TYPES)
def test_choices_have_docs(spec_dir: Path, part: str) -> None:
    root = parse(spec_dir, part)
    assert [e.get("name") for e in all_of(root, "choice") if not doc_text(e)] == []


def test_descriptors_are_unique_and_in_place(spec_dir: Path) -> None:
    descriptors = {
        owner(element).attrib["name"]: element
        for part in TYPES
        for element in all_of(parse(spec_dir, part), "descriptor")
    }
    codes = {name: code_of(element) for name, element in descriptors.items()}
    assert codes == CODES | FILTER_CODES
    assert len(set(codes.values())) == len(codes)
    symbols = [element.attrib["name"] for element in descriptors.values()]
    assert len(set(symbols)) == len(symbols)


def test_symbolic_descriptors_follow_type_and_source(spec_dir: Path) -> None:
    for part in TYPES:
        domain = "amqp" if part in CORE else "apache.org"
        for element in all_of(parse(spec_dir, part), "descriptor"):
            type_ = owner(element)
            source = type_.attrib["source"]
            # Annotations are maps by another name.
            kind = "map" if source == "annotations" else source
            assert element.get("name") == f"{domain}:{type_.get('name')}:{kind}"


def test_encoding_codes_are_unique_and_agree_with_their_category(spec_dir: Path) -> None:
    encodings = all_of(parse(spec_dir, "types"), "encoding")
    codes = [int(element.attrib["code"], 16) for element in encodings]
    assert len(codes) == len(set(codes)) == 39
    # AMQP 1.0 §1.2: the high half of a constructor octet tells what follows it.
    rows = {0x4: ("fixed", 0), 0x5: ("fixed", 1), 0x6: ("fixed", 2), 0x7: ("fixed", 4)}
    rows |= {0x8: ("fixed", 8), 0x9: ("fixed", 16), 0xA: ("variable", 1), 0xB: ("variable", 4)}
    rows |= {0xC: ("compound", 1), 0xD: ("compound", 4), 0xE: ("array", 1), 0xF: ("array", 4)}
    for element, code in zip(encodings, codes, strict=True):
        assert (element.get("category"), int(element.attrib["width"])) == rows[code >> 4]


def test_every_named_type_and_archetype_exists(spec_dir: Path) -> None:
    roots = [parse(spec_dir, part) for part in TYPES]
    types = [element for root in roots for element in all_of(root, "type")]
    names = {element.attrib["name"] for element in types} | {"*"}
    provided = {a.strip() for e in types for a in e.get("provides", "").split(",") if a.strip()}
    # Left to a distributed-transactions specification that never came (§4.5.2).
    provided.add("global-tx-id")
    for element in types:
        assert element.get("source", "*") in names
    for root in roots:
        for field in all_of(root, "field"):
            assert field.get("type") in names
            required = {a.strip() for a in field.get("requires", "").split(",") if a.strip()}
            assert required <= provided
