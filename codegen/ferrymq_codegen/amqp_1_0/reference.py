"""The reference of the types, as pages in Markdown: one per part of the specification, one index.

A site takes them from `core_pages`; `python -m codegen reference --out DIR` writes them.
"""

from __future__ import annotations

import re

from ferrymq_codegen.amqp_1_0.model import Part
from ferrymq_codegen.amqp_1_0.names import constant_name, module_name
from ferrymq_codegen.amqp_1_0.read import read_spec
from ferrymq_codegen.amqp_1_0.resolve import Resolved, resolve
from ferrymq_codegen.amqp_1_0.schemas import FieldText, TypeText, text_of
from ferrymq_codegen.docs import plain
from ferrymq_codegen.markdown import cell, escaped
from ferrymq_codegen.specification import FOLDERS


def core_pages() -> dict[str, str]:
    """Return the pages about the types of `ferrymq_types` by their file names."""
    return pages(resolve(read_spec(list(FOLDERS))), "ferrymq_types")


def pages(resolved: Resolved, package: str) -> dict[str, str]:
    """Return the text of every page by its file name; `index.md` links to all types."""
    places = {t.name: f"{_page(t.part)}#{_anchor(t.name)}" for t in resolved.spec.types()}
    files = {"index.md": _index(resolved, package, places)}
    for part in resolved.parts():
        files[_page(part.name)] = _part(resolved, part, package, places)
    return files


def _page(part: str) -> str:
    return f"{module_name(part)}.md"


def _anchor(name: str) -> str:
    """Return the anchor that sites make of a heading."""
    return re.sub(r"[^a-z0-9_-]", "", name.lower())


def _index(resolved: Resolved, package: str, places: dict[str, str]) -> str:
    lines = [
        f"# Types of `{package}`",
        "",
        "Every type by name, with its class, its descriptor and its meaning. "
        "`ferrymq describe NAME` shows the same in a terminal.",
        "",
        "| type | in Python | descriptor | what it is |",
        "|---|---|---|---|",
    ]
    for type_ in sorted(resolved.spec.types(), key=lambda t: t.name):
        text = text_of(resolved, type_)
        descriptor = f"`{text.symbol}`" if text.symbol else ""
        what = cell(text.label)
        python = f"`{text.module}.{text.python}`"
        lines.append(f"| [{text.name}]({places[text.name]}) | {python} | {descriptor} | {what} |")
    return "\n".join([*lines, ""])


def _part(resolved: Resolved, part: Part, package: str, places: dict[str, str]) -> str:
    module = f"{package}.{module_name(part.name)}"
    title = part.label or part.name
    lines = [f"# {title[0].upper()}{title[1:]}", "", f"Types of the module `{module}`.", ""]
    if part.doc:
        lines += [_paragraphs(part.doc), ""]
    definitions = list(part.definitions())
    if definitions:
        lines += ["## Constants", "", "| name | value | what it is |", "|---|---|---|"]
        for one in definitions:
            what = cell(_joined(one.label, one.doc))
            lines.append(f"| `{constant_name(one.name)}` | `{one.value}` | {what} |")
        lines.append("")
    for type_ in part.types():
        lines += _type(resolved, text_of(resolved, type_), module, places)
    return "\n".join(lines)


def _type(resolved: Resolved, text: TypeText, module: str, places: dict[str, str]) -> list[str]:
    facts = [f"`{module}.{text.python}`", text.kind]
    if text.symbol:
        facts.append(f"descriptor `{text.symbol}` ({text.code})")
    if text.source and text.kind == "restricted":
        facts.append(f"source {_link(text.source, places)}")
    if text.provides:
        facts.append("provides " + ", ".join(f"`{word}`" for word in text.provides))
    if text.section:
        facts.append(text.section)
    lines = [f"## {text.name}", "", "; ".join(facts), ""]
    if text.label:
        lines += [f"**{escaped(_sentence(text.label))}**", ""]
    if text.doc:
        lines += [_paragraphs(text.doc), ""]
    if text.fields:
        lines += ["| field | type | in Python | default | what it is |", "|---|---|---|---|---|"]
        lines += [_field(field, resolved, places) for field in text.fields]
        lines.append("")
    if text.choices:
        if text.open:
            lines += ["Other values are legal too.", ""]
        lines += ["| choice | value | what it is |", "|---|---|---|"]
        for choice in text.choices:
            lines.append(f"| `{choice.member}` | `{choice.value}` | {cell(choice.doc)} |")
        lines.append("")
    if text.encodings:
        lines += ["| encoding | code | form | what it is |", "|---|---|---|---|"]
        for encoding in text.encodings:
            form = f"{encoding.category}, width {encoding.width}"
            name, what = encoding.name or "the only one", cell(encoding.label)
            lines.append(f"| {name} | `{encoding.code}` | {form} | {what} |")
        lines.append("")
    return lines


def _field(field: FieldText, resolved: Resolved, places: dict[str, str]) -> str:
    kind = _link(field.type, places)
    if field.requires:
        providers = [t.name for word in field.requires for t in resolved.capabilities.get(word, ())]
        links = ", ".join(_link(name, places) for name in dict.fromkeys(providers))
        kind = links or f"any {' or '.join(field.requires)}"
    if field.multiple:
        kind += ", several"
    default = "mandatory" if field.mandatory else f"`{field.default}`" if field.default else ""
    # Renderers disagree on a bar in the code of a table.
    annotation = field.annotation.replace("|", "&#124;")
    what = cell(_joined(field.label, field.doc))
    return f"| `{field.attribute}` | {kind} | <code>{annotation}</code> | {default} | {what} |"


def _link(name: str, places: dict[str, str]) -> str:
    return f"[{name}]({places[name]})" if name in places else "any"


def _joined(label: str, doc: str) -> str:
    return f"{_sentence(label)}\n\n{doc}" if label and doc else _sentence(label) or doc


def _sentence(label: str) -> str:
    """Return a label as a sentence."""
    if not label:
        return ""
    head = label[0].upper() + label[1:]
    return head if head.endswith((".", "!", "?")) else head + "."


def _paragraphs(doc: str) -> str:
    """Return a text as paragraphs; those that keep their line breaks become blocks of code."""
    blocks = []
    for block in doc.split("\n\n"):
        if block.startswith("\x01"):
            blocks.append("```text\n" + plain(block) + "\n```")
        else:
            item = re.match(r"(- |\d+\. )", block)
            head = item[0] if item else ""
            blocks.append(head + escaped(block[len(head) :]))
    return "\n\n".join(blocks)
