"""Atom documents (RFC 4287): the description in an entry that was received, and entries, feeds and
errors to send.

Documents of clients are bounded in size, depth and number of elements, and have no DTD. So entities
cannot be declared, and nothing outside the document is read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from xml.etree.ElementTree import Element, SubElement, TreeBuilder
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

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
# Characters that no document may have (XML 1.0 §2.2).
_INVISIBLE: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
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
        # Another encoding in the XML declaration does not count: not every codec is for texts.
        self.parser = parser = expat.ParserCreate("utf-8", namespace_separator=_DIVIDER)
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
    """Return the bytes of a document.

    Some clients look for names without prefixes, and for the prefixes that the vendor uses. So each
    namespace is the default one where it begins, except that of attributes (``i``) and of counts
    (``d2p1``).
    """
    pieces = ['<?xml version="1.0" encoding="utf-8"?>']
    _write(pieces, root, "", False)
    return "".join(pieces).encode()


def _write(pieces: list[str], element: Element, default: str, instance: bool) -> None:
    """Append an element. `default` is the default namespace there, and `instance` whether the
    prefix ``i`` is declared."""
    namespace, tag = _split(element.tag)
    declared = ""
    if namespace == COUNTS:
        tag = f"d2p1:{tag}"
    elif namespace != default:
        declared = f' xmlns="{namespace}"'
        default = namespace
        if namespace == SERVICE_BUS:
            declared += f' xmlns:i="{INSTANCE}"'
            instance = True
    if len(element) and _split(element[0].tag)[0] == COUNTS:
        declared += f' xmlns:d2p1="{COUNTS}"'
    pieces.append(f"<{tag}{declared}")
    for key, value in element.items():
        where, word = _split(key)
        if where == INSTANCE:
            assert instance
            word = f"i:{word}"
        pieces.append(f" {word}={quoteattr(value)}")
    if not len(element) and not element.text:
        pieces.append("/>")
        return
    pieces.append(">")
    pieces.append(escape(_INVISIBLE.sub("\ufffd", element.text or "")))
    for child in element:
        _write(pieces, child, default, instance)
    pieces.append(f"</{tag}>")


def _split(tag: str) -> tuple[str, str]:
    """Return the namespace and the name of a tag."""
    if not tag.startswith("{"):
        return "", tag
    namespace, _, word = tag[1:].partition("}")
    return namespace, word


def _add(parent: Element, tag: str, text: str) -> Element:
    made = SubElement(parent, name(tag, ATOM))
    made.text = text
    return made
