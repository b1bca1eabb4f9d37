"""Our definitions of AMQP 0-9-1 against the published ones, where Debian has them.

The files of Debian's package `amqp-specs` have no texts. Everything else must be equal: names,
indices, domains, types, asserts, sides, responses, and their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from lxml import etree

from ferrymq_codegen.amqp_0_9_1.read import read_documents
from ferrymq_codegen.amqp_0_9_1.resolve import resolve

PUBLISHED = Path("/usr/share/amqp/specs/0-9-1/amqp0-9-1.stripped.xml")
RABBITMQ = Path("/usr/share/amqp/specs/0-9-1-rabbit/amqp0-9-1.stripped.extended.xml")
OURS = Path("amqp-0-9-1/amqp0-9-1.xml")
EXTENSION = Path("amqp-0-9-1/extensions/rabbitmq.xml")

debian = pytest.mark.skipif(
    not PUBLISHED.is_file(), reason="Debian package amqp-specs not installed"
)


def facts(element: etree._Element, depth: int = 0) -> Iterator[tuple[int, str, dict[str, str]]]:
    """Each element in document order, without labels."""
    if not isinstance(element.tag, str):
        return
    yield depth, element.tag, {k: v for k, v in element.attrib.items() if k != "label"}
    for child in element:
        yield from facts(child, depth + 1)


@debian
def test_nothing_but_labels_differs(spec_dir: Path) -> None:
    ours = etree.parse(str(spec_dir / OURS)).getroot()
    assert list(facts(ours)) == list(facts(etree.parse(str(PUBLISHED)).getroot()))


def methods(root: etree._Element) -> dict[str, list[tuple[int, str, dict[str, str]]]]:
    found = {}
    for cls in root.iter("class"):
        for method in cls.iter("method"):
            if method.get("replaces"):
                del method.attrib["replaces"]
            found[f"{cls.get('name')}.{method.get('name')}"] = list(facts(method))
    return found


@debian
def test_rabbitmqs_methods_are_those_that_it_has_published(spec_dir: Path) -> None:
    core = methods(etree.parse(str(PUBLISHED)).getroot())
    theirs = methods(etree.parse(str(RABBITMQ)).getroot())
    added = {name: method for name, method in theirs.items() if core.get(name) != method}
    ours = methods(etree.parse(str(spec_dir / EXTENSION)).getroot())
    # RabbitMQ's documentation has these; the file of Debian is older.
    later = {
        "connection.blocked",
        "connection.unblocked",
        "connection.update-secret",
        "connection.update-secret-ok",
    }
    assert {name: method for name, method in ours.items() if name not in later} == added
    assert later <= ours.keys()


@pytest.mark.parametrize("name", [OURS, EXTENSION])
def test_files_are_valid_and_have_labels_of_our_own(spec_dir: Path, name: Path) -> None:
    root = etree.parse(str(spec_dir / name)).getroot()
    schema = etree.DTD(str(spec_dir / "amqp-0-9-1" / "amqp-0-9-1.dtd"))
    assert schema.validate(root), schema.error_log
    for element in root.iter("constant", "domain", "class", "method", "field"):
        assert element.get("label"), etree.tostring(element)
    assert not list(root.iter("doc"))


@debian
def test_the_published_file_can_be_read_as_it_is() -> None:
    protocol = resolve(read_documents([PUBLISHED]))
    assert [cls.name for cls in protocol.classes] == [
        *("connection", "channel", "exchange", "queue", "basic", "tx"),
    ]
