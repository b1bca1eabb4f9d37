"""The `doc` elements of a spec as plain text, and that text as a Python docstring."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from lxml import etree

WIDTH = 96
"""Column at which docstrings wrap."""

_LISTS = ("ul", "ol")


def local(element: etree._Element) -> str:
    """Return the element's name without its namespace, or an empty string for a comment."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def text_of(element: etree._Element) -> str:
    """Return the `doc` children of `element` as paragraphs separated by blank lines.

    A block that must keep its line breaks (a picture, a list item) has its lines marked with a
    leading control character, which `docstring` takes off.
    """
    blocks: list[str] = []
    for child in element:
        if local(child) == "doc":
            blocks.extend(_blocks(child))
    return "\n\n".join(blocks)


def _blocks(element: etree._Element) -> Iterator[str]:
    for child in element:
        name = local(child)
        if name == "p":
            yield from filter(None, [_titled(child, _inline(child))])
        elif name == "picture":
            yield _kept("".join(child.itertext()))
        elif name in _LISTS:
            yield from _items(child)
        elif name == "dl":
            yield from _definitions(child)
        elif name == "doc":
            yield from _blocks(child)


def _items(element: etree._Element) -> Iterator[str]:
    for number, item in enumerate((i for i in element if local(i) == "li"), 1):
        mark = "-" if local(element) == "ul" else f"{number}."
        yield f"{mark} {_flat(item)}"


def _definitions(element: etree._Element) -> Iterator[str]:
    term = ""
    for child in element:
        if local(child) == "dt":
            term = _inline(child)
        elif local(child) == "dd":
            yield f"- {term}: {_flat(child)}"


def _flat(element: etree._Element) -> str:
    """Return the content of a list item as one paragraph."""
    parts = [_space(element.text or "")]
    for child in element:
        name = local(child)
        if name == "p":
            parts.append(_inline(child))
        elif name in _LISTS:
            parts.append("; ".join(_flat(item) for item in child if local(item) == "li"))
        else:
            parts.append(_space("".join(child.itertext())))
        parts.append(_space(child.tail or ""))
    return " ".join(filter(None, parts))


def _titled(element: etree._Element, text: str) -> str:
    title = element.get("title")
    return f"{title}: {text}" if title and text else text


def _inline(element: etree._Element) -> str:
    """Return running text; a cross reference without a text of its own shows the name of its
    target."""
    parts = [element.text or ""]
    for child in element:
        name = local(child)
        inner = _inline(child) if name else ""
        if name == "xref" and not inner:
            inner = child.get("choice") or child.get("name") or ""
        if name == "br":
            inner = " "
        parts.append(inner)
        parts.append(child.tail or "")
    return _space("".join(parts))


def _space(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _kept(text: str) -> str:
    lines = textwrap.dedent(text.expandtabs()).strip("\n").split("\n")
    return "\n".join("\x01" + line.rstrip() for line in lines)


def plain(text: str) -> str:
    """Return a text without the marks of the lines that keep their breaks."""
    return text.replace("\x01", "")


def docstring(text: str, indent: int, fallback: str) -> str:
    """Return `text` as a triple-quoted literal whose lines are indented by `indent` columns.

    `fallback` is used when there is no text: public names always have a docstring.
    """
    paragraphs = []
    for block in (text or fallback).split("\n\n"):
        if block.startswith("\x01"):
            paragraphs.append("\n".join(line[1:] for line in block.split("\n")))
        else:
            hanging = "  " if re.match(r"(-|\d+\.) ", block) else ""
            paragraphs.append(
                textwrap.fill(
                    block,
                    WIDTH - indent - 3,
                    subsequent_indent=hanging,
                    break_long_words=False,
                    break_on_hyphens=False,
                )
            )
    body = "\n\n".join(paragraphs).replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    if body.endswith('"'):
        body += " "
    if "\n" in body:
        body += "\n"
    margin = " " * indent
    lines = [margin + line if line else "" for line in body.split("\n")]
    if "\n" in body:
        lines[-1] = margin
    return f'"""{chr(10).join(lines).lstrip()}"""'
