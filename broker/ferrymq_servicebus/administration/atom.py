"""Atom documents (RFC 4287): the description in an entry that was received, and entries, feeds and
errors to send.

Documents of clients are bounded in size, depth and number of elements, and have no DTD. So entities
cannot be declared, and nothing outside the document is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.etree.ElementTree import Element, SubElement, TreeBuilder, tostring
from xml.parsers import expat

from ferrymq_servicebus.administration.errors import HttpError

ATOM: Final = "http://www.w3.org/2005/Atom"
SERVICE_BUS: Final = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
COUNTS: Final = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
INSTANCE: Final = "http://www.w3.org/2001/XMLSchema-instance"
SCHEMA: Final = "http://www.w3.org/2001/XMLSchema"
# The attribute with the type of a filter or of a value.
TYPE: Final = f"{{{INSTANCE}}}type"

MOST_BYTES: Final = 65536
_DEPTH: Final = 16
_ELEMENTS: Final = 2000
# Divides a namespace from a name in expat's callbacks.
_DIVIDER: Final = "}"
# The type of content, by the kind of document.
ENTRY_TYPE: Final = "application/atom+xml;type=entry;charset=utf-8"
FEED_TYPE: Final = "application/atom+xml;type=feed;charset=utf-8"
ERROR_TYPE: Final = "application/xml; charset=utf-8"


def name(tag: str, namespace: str = SERVICE_BUS) -> str:
    """Return a name with its namespace, as `Element.tag` has it."""
    return f"{{{namespace}}}{tag}"


def read_description(body: bytes) -> Element:
    """Return the description in the content of an entry. Raises `HttpError` (400)."""
    entry = parse(body)
    content = entry.find(name("content", ATOM))
    if entry.tag != name("entry", ATOM) or content is None or len(content) != 1:
        raise HttpError(400, "the body is not an Atom entry with one description")
    return content[0]


def parse(body: bytes) -> Element:
    """Return the root of a document. Raises `HttpError` (400)."""
    if len(body) > MOST_BYTES:
        raise HttpError(400, f"the document has more than {MOST_BYTES} bytes")
    reader = _Reader()
    try:
        return reader.read(body)
    except expat.ExpatError as error:
        raise HttpError(400, f"the body is not XML: line {error.lineno}") from None


class _Reader:
    """A reader of one document, within the bounds."""

    def __init__(self) -> None:
        self._builder = TreeBuilder()
        self._depth = 0
        self._elements = 0
        # The prefixes in use; values name their types by a prefix, which the tree does not keep.
        self.parser = parser = expat.ParserCreate(namespace_separator=_DIVIDER)
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._builder.data
        parser.StartDoctypeDeclHandler = self._refuse
        parser.EntityDeclHandler = self._refuse
        parser.ExternalEntityRefHandler = self._refuse

    def read(self, body: bytes) -> Element:
        """Return the root."""
        self.parser.Parse(body, True)
        return self._builder.close()

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        self._elements += 1
        if self._depth > _DEPTH or self._elements > _ELEMENTS or len(attributes) > _DEPTH:
            raise HttpError(400, "the document is too deep or has too many elements")
        self._builder.start(_full(tag), {_full(key): value for key, value in attributes.items()})

    def _end(self, tag: str) -> None:
        self._depth -= 1
        self._builder.end(_full(tag))

    def _refuse(self, *_: object) -> int:
        raise HttpError(400, "the document must not have a DTD")


def _full(tag: str) -> str:
    return f"{{{tag}" if _DIVIDER in tag else tag


def entry(title: str, url: str, times: tuple[str, str], description: Element) -> Element:
    """Return an entry with a description. `times` are those of creation and of the last change."""
    made = Element(name("entry", ATOM))
    _add(made, "id", url)
    _add(made, "title", title).set("type", "text")
    _add(made, "published", times[0])
    _add(made, "updated", times[1])
    author = SubElement(made, name("author", ATOM))
    _add(author, "name", "ferrymq")
    SubElement(made, name("link", ATOM), {"rel": "self", "href": url})
    content = SubElement(made, name("content", ATOM), {"type": "application/xml"})
    content.append(description)
    return made


def feed(title: str, url: str, updated: str, entries: Sequence[Element], following: str) -> Element:
    """Return a feed of entries. `following` is the URL of the next page; empty for none."""
    made = Element(name("feed", ATOM))
    _add(made, "title", title).set("type", "text")
    _add(made, "id", url)
    _add(made, "updated", updated)
    SubElement(made, name("link", ATOM), {"rel": "self", "href": url})
    if following:
        SubElement(made, name("link", ATOM), {"rel": "next", "href": following})
    made.extend(entries)
    return made


def error(status: int, detail: str) -> Element:
    """Return the document for a request that failed."""
    made = Element("Error")
    SubElement(made, "Code").text = str(status)
    SubElement(made, "Detail").text = detail
    return made


def encode(root: Element) -> bytes:
    """Return the bytes of a document."""
    encoded: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return encoded


def _add(parent: Element, tag: str, text: str) -> Element:
    made = SubElement(parent, name(tag, ATOM))
    made.text = text
    return made
