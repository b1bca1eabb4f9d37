"""The reference of the methods of AMQP 0-9-1, as pages in Markdown: one per class, one index.

A site takes them from `core_pages`; `python -m codegen reference --out DIR` writes them.
"""

from __future__ import annotations

from ferrymq_codegen.amqp_0_9_1.model import Class, Field, Method
from ferrymq_codegen.amqp_0_9_1.names import (
    constant_name,
    field_name,
    method_class,
    module_name,
    properties_class,
)
from ferrymq_codegen.amqp_0_9_1.read import read_documents
from ferrymq_codegen.amqp_0_9_1.resolve import Protocol, resolve
from ferrymq_codegen.amqp_0_9_1.views import PYTHON
from ferrymq_codegen.markdown import cell
from ferrymq_codegen.specification import CORE_0_9_1, FOLDERS_0_9_1


def core_pages() -> dict[str, str]:
    """Return the pages about the methods of `ferrymq_types_0_9_1` by their file names."""
    return pages(resolve(read_documents(FOLDERS_0_9_1)), CORE_0_9_1)


def pages(protocol: Protocol, package: str) -> dict[str, str]:
    """Return the text of every page by its file name; `index.md` links to all classes."""
    files = {"index.md": _index(protocol, package)}
    for cls in protocol.classes:
        files[f"{module_name(cls.name)}.md"] = _class(protocol, cls, package)
    return files


def _index(protocol: Protocol, package: str) -> str:
    lines = [
        f"# Methods of `{package}`",
        "",
        "Every method of AMQP 0-9-1, with RabbitMQ's additions.",
        "",
        "| method | indices | in Python | received by | what it does |",
        "|---|---|---|---|---|",
    ]
    for cls in protocol.classes:
        page = f"{module_name(cls.name)}.md"
        for method in cls.methods:
            name = f"{cls.name}.{method.name}"
            anchor = name.replace(".", "")
            python = f"`{module_name(cls.name)}.{method_class(cls.name, method.name)}`"
            lines.append(
                f"| [{name}]({page}#{anchor}) | {cls.index}, {method.index} | {python} "
                f"| {', '.join(sorted(method.sides))} | {cell(method.label)} |"
            )
    lines += ["", "## Constants", "", "| name | value | closes | meaning |", "|---|---|---|---|"]
    closes = {"soft-error": "the channel", "hard-error": "the connection"}
    for constant in protocol.constants:
        lines.append(
            f"| `{constant_name(constant.name)}` | {constant.value} "
            f"| {closes.get(constant.cls, '')} | {cell(constant.label)} |"
        )
    return "\n".join([*lines, ""])


def _class(protocol: Protocol, cls: Class, package: str) -> str:
    module = f"{package}.{module_name(cls.name)}"
    lines = [f"# Class {cls.name}", "", f"Methods of the module `{module}`: {cls.label}.", ""]
    if cls.fields:
        lines += ["## Properties", "", f"`{module}.{properties_class(cls.name)}`", ""]
        lines += _fields(protocol, cls.name, cls.fields)
    for method in cls.methods:
        lines += _method(protocol, cls, method, module)
    return "\n".join(lines)


def _method(protocol: Protocol, cls: Class, method: Method, module: str) -> list[str]:
    path = f"{cls.name}.{method.name}"
    facts = [
        f"`{module}.{method_class(cls.name, method.name)}`",
        f"indices {cls.index}, {method.index}",
        f"received by {' and '.join(sorted(method.sides))}",
    ]
    if method.synchronous:
        facts.append("synchronous")
    if method.responses:
        facts.append("answered by " + " or ".join(f"{cls.name}.{n}" for n in method.responses))
    if method.content:
        facts.append("a content follows")
    lines = [f"## {path}", "", "; ".join(facts), ""]
    if method.label:
        lines += [f"**{method.label[0].upper()}{method.label[1:]}.**", ""]
    shown = tuple(field for field in method.fields if not field.reserved)
    return lines + (_fields(protocol, path, shown) if shown else [])


def _fields(protocol: Protocol, path: str, fields: tuple[Field, ...]) -> list[str]:
    lines = ["| field | domain | in Python | what it is |", "|---|---|---|---|"]
    for field in fields:
        # Renderers disagree on a bar in the code of a table.
        python = PYTHON[protocol.type_of(field)][0].replace("|", "&#124;")
        lines.append(
            f"| `{field_name(path, field.name)}` | {field.domain} | <code>{python}</code> "
            f"| {cell(field.label)} |"
        )
    return [*lines, ""]
