"""Stage 1: XML files into the model, validated against `amqp.dtd` of the project."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lxml import etree

from ferrymq_codegen.amqp_1_0.literals import number
from ferrymq_codegen.amqp_1_0.model import (
    UNREAD,
    Choice,
    Definition,
    Descriptor,
    Encoding,
    Field,
    Part,
    Section,
    Spec,
    Type,
)
from ferrymq_codegen.amqp_1_0.names import imported_name
from ferrymq_codegen.docs import local, text_of
from ferrymq_codegen.mistakes import Location, Mistakes, shown
from ferrymq_codegen.specification import DTD
from ferrymq_codegen.xml_files import place, read_dtd, read_xml, xml_files

NAMESPACE: Final = "http://www.amqp.org/schema/amqp.xsd"


def read_spec(
    paths: Sequence[Path], dtd: Path = DTD, *, imported: Sequence[Path] = (), package: str = ""
) -> Spec:
    """Read every file of `paths`, and every `*.xml` file of its folders, in this order.

    The types of the files of `imported` are those of `package`, which exists.

    Raises `SpecError` with every mistake of every file if a file cannot be used at all. Mistakes in
    single values are those of the spec that is returned.
    """
    mistakes = Mistakes()
    schema = read_dtd(dtd, mistakes)
    parts: list[Part | None] = []
    sources = [(path, package) for path in imported] + [(path, "") for path in paths]
    for source, owner in sources:
        files = xml_files(source, mistakes)
        if schema is None or not files:
            parts.append(None)
        else:
            parts.extend(_Reader(path, schema, mistakes, owner).read() for path in files)
    read = tuple(part for part in parts if part is not None)
    if len(read) < len(parts):
        mistakes.stop_if_any()
    return Spec(read, tuple(mistakes.found))


class _Reader:
    """Reader of one file."""

    def __init__(
        self, path: Path, schema: etree.DTD, mistakes: Mistakes, imported: str = ""
    ) -> None:
        self.path = path
        self.imported = imported
        self.name = f"{imported}, {path.name}" if imported else shown(path)
        self.schema = schema
        self.mistakes = mistakes

    def read(self) -> Part | None:
        """Return the part, or None when the file cannot be used at all."""
        file = read_xml(self.path, self.name, self.schema, NAMESPACE, self.mistakes)
        if file is None:
            return None
        root = file.root
        name = root.get("name", "")
        if self.imported:
            # The package that is generated may have a part of the same name.
            name = imported_name(name)
        return Part(
            name=name,
            label=root.get("label", ""),
            doc=text_of(root),
            sections=tuple(
                self._section(child, name) for child in root if local(child) == "section"
            ),
            file=self.path.name,
            sha256=file.sha256,
            at=self._at(root),
            imported=self.imported,
        )

    def _at(self, element: etree._Element) -> Location:
        return place(self.name, element)

    def _section(self, element: etree._Element, part: str) -> Section:
        return Section(
            name=element.get("name", ""),
            title=element.get("title", ""),
            label=element.get("label", ""),
            types=tuple(self._type(e, part) for e in element if local(e) == "type"),
            definitions=tuple(self._definition(e) for e in element if local(e) == "definition"),
            at=self._at(element),
        )

    def _definition(self, element: etree._Element) -> Definition:
        return Definition(
            name=element.get("name", ""),
            value=element.get("value", ""),
            label=element.get("label", ""),
            doc=text_of(element),
            at=self._at(element),
        )

    def _type(self, element: etree._Element, part: str) -> Type:
        return Type(
            name=element.get("name", ""),
            cls=element.get("class", ""),
            source=element.get("source"),
            provides=_commas(element.get("provides")),
            label=element.get("label", ""),
            doc=text_of(element),
            encodings=tuple(self._encoding(e) for e in element if local(e) == "encoding"),
            descriptors=tuple(self._descriptor(e) for e in element if local(e) == "descriptor"),
            fields=tuple(self._field(e) for e in element if local(e) == "field"),
            choices=tuple(self._choice(e) for e in element if local(e) == "choice"),
            part=part,
            at=self._at(element),
        )

    def _encoding(self, element: etree._Element) -> Encoding:
        code = self._number(element, "code", 0xFF)
        width = self._number(element, "width", 0xFF)
        if width is None and element.get("width") is None:
            self.mistakes.add(self._at(element), "encoding has no width")
        return Encoding(
            name=element.get("name"),
            # A value that could not be read is not checked further.
            code=UNREAD if code is None or width is None else code,
            category=element.get("category", ""),
            width=width or 0,
            label=element.get("label", ""),
            at=self._at(element),
        )

    def _descriptor(self, element: etree._Element) -> Descriptor:
        text = element.get("code")
        code: int | None = None
        if text is not None:
            code = _code(text)
            if code is None:
                what = f'descriptor code "{text}" is not of the form 0x00000000:0x00000010'
                self.mistakes.add(self._at(element), what)
        elif element.get("name") is not None:
            self.mistakes.add(self._at(element), "descriptor has no code")
        if element.get("name") is None:
            self.mistakes.add(self._at(element), "descriptor has no name")
        return Descriptor(name=element.get("name"), code=code, at=self._at(element))

    def _field(self, element: etree._Element) -> Field:
        type_ = element.get("type")
        if type_ is None:
            self.mistakes.add(self._at(element), f"field {element.get('name')} has no type")
        return Field(
            name=element.get("name", ""),
            type=type_ if type_ is not None else "*",
            requires=_commas(element.get("requires")),
            default=element.get("default"),
            mandatory=self._flag(element, "mandatory"),
            multiple=self._flag(element, "multiple"),
            label=element.get("label", ""),
            doc=text_of(element),
            at=self._at(element),
        )

    def _choice(self, element: etree._Element) -> Choice:
        return Choice(
            name=element.get("name", ""),
            value=element.get("value", ""),
            doc=text_of(element) or element.get("label", ""),
            at=self._at(element),
        )

    def _number(self, element: etree._Element, attribute: str, limit: int) -> int | None:
        text = element.get(attribute)
        if text is None:
            return None
        value = number(text)
        if value is None or not 0 <= value <= limit:
            what = f'{attribute}="{text}" is not a number from 0 to {limit}'
            self.mistakes.add(self._at(element), what)
            return None
        return value

    def _flag(self, element: etree._Element, attribute: str) -> bool:
        text = element.get(attribute, "false")
        if text not in ("true", "false"):
            self.mistakes.add(self._at(element), f'{attribute}="{text}" is not true or false')
        return text == "true"


def _code(text: str) -> int | None:
    """Return `0xDDDDDDDD:0xIIIIIIII` (domain, identifier) as one unsigned 64-bit number."""
    domain, colon, identifier = text.partition(":")
    high, low = number(domain), number(identifier)
    if not colon or high is None or low is None:
        return None
    if not (0 <= high <= 0xFFFFFFFF and 0 <= low <= 0xFFFFFFFF):
        return None
    return high << 32 | low


def _commas(text: str | None) -> tuple[str, ...]:
    return tuple(filter(None, (word.strip() for word in (text or "").split(","))))
