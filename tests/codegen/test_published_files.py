"""The published form is taken unmodified: bare or with documentation, namespace and DOCTYPE."""

from __future__ import annotations

from pathlib import Path

import pytest

PUBLISHED = Path("/usr/share/amqp/specs/1-0")

BODY = """
<amqp name="case" label="a part"{namespace}>
  <doc title="Overview"><p>What this part is for.</p></doc>
  <section name="s" title="A section" label="its label">
    <doc><p>Prose between types.</p></doc>
    <definition name="LIMIT" value="0x200" label="a limit"><doc><p>In bytes.</p></doc></definition>
    <type name="thing" class="composite" source="list" label="a thing">
      <doc title="thing">
        <p title="Note">See <anchor name="here">this</anchor> and <xref type="section" name="s"/>,
           or <xref name="thing">that</xref>; <b>bold</b>, <i>it<sub>2</sub></i>,
           <term>t</term>.</p>
        <picture title="Figure">
          +---+    +---+
          | A |--->| B |
          +---+    +---+
        </picture>
        <ul title="list"><li>first</li><li><p>second, in a paragraph</p></li></ul>
        <ol><li>one<ul><li>nested</li></ul></li></ol>
        <dl><dt>word</dt><dd><p>its meaning</p></dd></dl>
      </doc>
      <descriptor name="case:thing:list" code="0x1:0x1"/>
      <field name="size" type="uint" default="7" label="how big">
        <doc><p>In frames.</p></doc>
      </field>
    </type>
  </section>
</amqp>
"""


@pytest.mark.parametrize("namespace", ["", ' xmlns="http://www.amqp.org/schema/amqp.xsd"'])
@pytest.mark.parametrize("doctype", ["", '<!DOCTYPE amqp SYSTEM "amqp.dtd">'])
def test_full_files(workshop, namespace: str, doctype: str) -> None:
    head = f'<?xml version="1.0"?>\n<?xml-stylesheet href="a.xsl"?>\n<!-- (c) -->\n{doctype}'
    workshop.write(head + BODY.replace("{namespace}", namespace))
    result = workshop.generate("--no-verify")
    assert result.status == 0, result.err
    text = (workshop.out / "case.py").read_text("utf-8")
    assert 'LIMIT: Final = 512\n"""A limit.\n\nIn bytes.\n"""' in text
    assert "Note: See this and s, or that; bold, it2, t." in " ".join(text.split())
    picture = "    +---+    +---+\n    | A |--->| B |\n    +---+    +---+\n"
    assert picture in text
    assert "    - second, in a paragraph\n" in text
    assert "    1. one nested\n" in text
    assert "    - word: its meaning\n" in text
    assert '    size: int\n    """How big.\n\n    In frames.\n    """' in text


def test_bare_files_of_2011(workshop) -> None:
    if not PUBLISHED.is_dir():
        pytest.skip("Debian package amqp-specs not installed")
    result = workshop.run("generate", "--spec", str(PUBLISHED), "--out", str(workshop.out))
    assert result.status == 0, result.err
    names = {path.name for path in workshop.out.iterdir()}
    assert names == {
        *("__init__.py", "py.typed", "unions.py", "registry.py", "descriptors.py", "types.py"),
        "schema.py",
        "transport.py",
        *("messaging.py", "transactions.py", "security.py"),
    }


def test_part_without_content_gives_no_module(workshop) -> None:
    """As the published index is."""
    workshop.types('<definition name="A" value="1"/>')
    workshop.write('<amqp name="index"/>', "index.xml")
    assert workshop.generate("--no-verify").status == 0
    assert not (workshop.out / "index.py").exists()
