"""Stage 1: XML files into the model, validated against `amqp-0-9-1.dtd` of the project."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lxml import etree

from ferrymq_codegen.amqp_0_9_1.model import (
    Assert,
    Class,
    Constant,
    Document,
    Domain,
    Field,
    Method,
)
from ferrymq_codegen.docs import local
from ferrymq_codegen.mistakes import Mistakes, shown
from ferrymq_codegen.specification import DTD_0_9_1
from ferrymq_codegen.xml_files import XmlFile, read_dtd, read_xml, xml_files


def read_documents(paths: Sequence[Path], dtd: Path = DTD_0_9_1) -> tuple[Document, ...]:
    """Read every file of `paths`, and every `*.xml` file of its folders, in this order.

    Raises `SpecError` with every mistake of every file.
    """
    mistakes = Mistakes()
    schema = read_dtd(dtd, mistakes)
    documents: list[Document] = []
    for path in paths:
        for file in xml_files(path, mistakes):
            if schema is None:
                continue
            read = read_xml(file, shown(file), schema, "", mistakes)
            if read is not None:
                documents.append(_Reader(read, file.name, mistakes).read())
    mistakes.stop_if_any()
    return tuple(documents)


class _Reader:
    """Reader of one file."""

    def __init__(self, file: XmlFile, name: str, mistakes: Mistakes) -> None:
        self.file = file
        self.name = name
        self.mistakes = mistakes

    def read(self) -> Document:
        root = self.file.root
        return Document(
            version=(root.get("major", ""), root.get("minor", ""), root.get("revision", "0")),
            constants=tuple(self._constant(e) for e in root if local(e) == "constant"),
            domains=tuple(self._domain(e) for e in root if local(e) == "domain"),
            classes=tuple(self._class(e) for e in root if local(e) == "class"),
            file=self.name,
            sha256=self.file.sha256,
            at=self.file.at(root),
        )

    def _constant(self, element: etree._Element) -> Constant:
        return Constant(
            name=element.get("name", ""),
            value=self._number(element, "value"),
            cls=element.get("class", ""),
            label=element.get("label", ""),
            at=self.file.at(element),
        )

    def _domain(self, element: etree._Element) -> Domain:
        return Domain(
            name=element.get("name", ""),
            type=element.get("type", ""),
            asserts=self._asserts(element),
            replaces=element.get("replaces") is not None,
            label=element.get("label", ""),
            at=self.file.at(element),
        )

    def _asserts(self, element: etree._Element) -> tuple[Assert, ...]:
        return tuple(
            Assert(check=e.get("check", ""), value=e.get("value", ""), at=self.file.at(e))
            for e in element
            if local(e) == "assert"
        )

    def _class(self, element: etree._Element) -> Class:
        return Class(
            name=element.get("name", ""),
            index=self._number(element, "index"),
            handler=element.get("handler", ""),
            fields=tuple(self._field(e) for e in element if local(e) == "field"),
            methods=tuple(self._method(e) for e in element if local(e) == "method"),
            label=element.get("label", ""),
            at=self.file.at(element),
        )

    def _method(self, element: etree._Element) -> Method:
        return Method(
            name=element.get("name", ""),
            index=self._number(element, "index"),
            synchronous=element.get("synchronous") is not None,
            content=element.get("content") is not None,
            deprecated=element.get("deprecated") is not None,
            replaces=element.get("replaces") is not None,
            sides=tuple(e.get("name", "") for e in element if local(e) == "chassis"),
            responses=tuple(e.get("name", "") for e in element if local(e) == "response"),
            fields=tuple(self._field(e) for e in element if local(e) == "field"),
            label=element.get("label", ""),
            at=self.file.at(element),
        )

    def _field(self, element: etree._Element) -> Field:
        name = element.get("name", "")
        domain = element.get("domain") or element.get("type")
        if domain is None:
            self.mistakes.add(self.file.at(element), f"field {name} has neither domain nor type")
        return Field(
            name=name,
            domain=domain or "",
            reserved=element.get("reserved") is not None,
            asserts=self._asserts(element),
            label=element.get("label", ""),
            at=self.file.at(element),
        )

    def _number(self, element: etree._Element, attribute: str) -> int:
        text = element.get(attribute, "")
        if not (text.isascii() and text.isdigit()) or not 0 <= int(text) <= 0xFFFF:
            what = f'{attribute}="{text}" is not a number from 0 to 65535'
            self.mistakes.add(self.file.at(element), what)
            return 0
        return int(text)
