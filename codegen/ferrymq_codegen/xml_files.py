"""XML files, read safely and validated against a DTD of the project.

Input is not trusted: external entities, external DTDs and the network are off, entity expansion is
bounded by the parser. Files may have a DOCTYPE or none, the namespace of their schema or none; the
DOCTYPE's own DTD is never read.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from lxml import etree

from ferrymq_codegen.docs import local
from ferrymq_codegen.mistakes import Location, Mistakes, shown


@dataclass(frozen=True, slots=True)
class XmlFile:
    """A valid file. `name` is how messages call it, `sha256` that of its bytes."""

    root: etree._Element
    name: str
    sha256: str

    def at(self, element: etree._Element) -> Location:
        """Return the place of an element."""
        return place(self.name, element)


def place(name: str, element: etree._Element) -> Location:
    """Return the place of an element in the file that messages call `name`."""
    line = element.sourceline
    return Location(name, line if isinstance(line, int) else 0)


def read_dtd(path: Path, mistakes: Mistakes) -> etree.DTD | None:
    """Return a DTD, or None with a mistake."""
    try:
        with path.open("rb") as file:
            return etree.DTD(file)
    except OSError as error:
        mistakes.add(Location(shown(path), 0), f"cannot read the DTD: {error.strerror}")
    except etree.DTDParseError as error:
        mistakes.add(Location(shown(path), 0), f"not a DTD: {error}")
    return None


def xml_files(path: Path, mistakes: Mistakes) -> list[Path]:
    """Return a file itself, or the `*.xml` files of a folder by name; none with a mistake."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        mistakes.add(Location(shown(path), 0), f"no such {'file' if path.suffix else 'folder'}")
        return []
    found = sorted(path.glob("*.xml"))
    if not found:
        mistakes.add(Location(shown(path), 0), "holds no .xml file")
    return found


def read_xml(
    path: Path, name: str, schema: etree.DTD, namespace: str, mistakes: Mistakes
) -> XmlFile | None:
    """Return a file, or None with its mistakes if it cannot be used at all."""
    try:
        data = path.read_bytes()
    except OSError as error:
        mistakes.add(Location(name, 0), f"cannot be read: {error.strerror}")
        return None
    root = _parse(data, name, mistakes)
    if root is None or not _valid(root, name, schema, namespace, mistakes):
        return None
    return XmlFile(root, name, hashlib.sha256(data).hexdigest())


def _parse(data: bytes, name: str, mistakes: Mistakes) -> etree._Element | None:
    parser = etree.XMLParser(
        resolve_entities="internal",
        load_dtd=False,
        no_network=True,
        dtd_validation=False,
        attribute_defaults=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        return etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        mistakes.add(Location(name, error.lineno or 0), f"not well-formed XML: {error.msg}")
        return None


def _valid(
    root: etree._Element, name: str, schema: etree.DTD, namespace: str, mistakes: Mistakes
) -> bool:
    for element in root.iter():
        if isinstance(element, etree._Entity):
            what = f"entity &{element.name}; is not expanded: external entities are off"
            mistakes.add(place(name, element), what)
            return False
        tag = element.tag
        if isinstance(tag, str) and tag.startswith("{"):
            if tag[1:].partition("}")[0] != namespace:
                what = f"element {local(element)} is not in AMQP's namespace {namespace}"
                mistakes.add(place(name, element), what)
                return False
    if schema.validate(root):
        return True
    for entry in schema.error_log:
        at = Location(name, max(entry.line, 0))
        mistakes.add(at, f"invalid against the DTD: {entry.message}")
    return False
