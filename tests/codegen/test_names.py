"""Any name may meet one that generated code uses: it is handled, or refused with file and line."""

from __future__ import annotations

import ast
import builtins
import importlib
import keyword
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from librt.strings import BytesWriter

from ferrymq_codec.reader import Reader
from ferrymq_codegen import output
from ferrymq_codegen.amqp_1_0.imports import IMPORTS
from ferrymq_codegen.amqp_1_0.read import read_spec
from ferrymq_codegen.amqp_1_0.render import render
from ferrymq_codegen.amqp_1_0.resolve import resolve
from ferrymq_codegen.mistakes import SpecError
from ferrymq_codegen.verify import verify

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "generated" / "ferrymq_types"


def used() -> set[str]:
    """Every name that generated modules use: imports, functions, parameters, variables."""
    names: set[str] = set(IMPORTS)
    for path in GENERATED.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Name):
                names.add(node.id)
            elif isinstance(node, ast.arg):
                names.add(node.arg)
            elif isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
    return names


# As a specification would write them, without the underscores that it cannot begin with.
NAMES = sorted(
    {
        re.sub("_+", "-", name).strip("-")
        for name in {*used(), *dir(builtins), *keyword.kwlist, *keyword.softkwlist}
    }
    - {""}
)
KINDS = [
    ('type="uint"', 7),
    ('type="string" mandatory="true"', "x"),
    ('type="*"', "anything"),
    ('type="symbol" multiple="true"', ["a", "b"]),
    ('type="decimal64" default="9.99"', None),
    ('type="colour" default="red"', None),
    ('type="boolean" default="true"', False),
    ('type="*" requires="either"', "x"),
    ('type="float" default="0.1"', 0.5),
    ('type="inner"', None),
]
COMMON = """
<type name="colour" class="restricted" source="symbol">
  <choice name="red" value="r"/><choice name="blue" value="b"/>
</type>
<type name="one" class="restricted" source="string" provides="either"/>
<type name="another" class="restricted" source="ulong" provides="either"/>
<type name="inner" class="composite" source="list">
  <descriptor name="case:inner:list" code="0x7:0x0"/><field name="value" type="uint"/>
</type>
"""


@pytest.fixture
def generated(workshop, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Generate, verify and import the part `case`; long output is left unformatted."""

    def build(text: str) -> Any:
        workshop.types(text)
        spec = resolve(read_spec([workshop.base, workshop.spec]))
        files = render(spec, workshop.out.name)
        verify(files, workshop.out.name)
        output.write(files, workshop.out)
        monkeypatch.syspath_prepend(str(workshop.out.parent))
        return importlib.import_module(f"{workshop.out.name}.case")

    yield build
    for name in [name for name in sys.modules if name.split(".")[0] == workshop.out.name]:
        del sys.modules[name]


def round_trip(module: Any, value: Any) -> Any:
    w = BytesWriter()
    value.encode(w)
    data = w.getvalue()
    r = Reader(data, 0, len(data))
    return getattr(module, f"read_{type(value).__name__.lower()}")(r, "value")


@pytest.mark.parametrize("provides", ["", ' provides="frame"'])
def test_a_field_of_any_name(generated, provides: str) -> None:
    """Some share a name with a function of the codec, a builtin or a variable of the decoder."""
    fields = {}
    for index, name in enumerate(dict.fromkeys(name.lower() for name in NAMES)):
        fields[name] = KINDS[index % len(KINDS)]
    text = "".join(f'<field name="{name}" {kind}/>\n' for name, (kind, _) in fields.items())
    module = generated(
        f'{COMMON}<type name="all" class="composite" source="list"{provides}>'
        f'<descriptor name="case:all:list" code="0x7:0x1"/>{text}</type>'
    )
    attributes = list(module.All.__dataclass_fields__)
    assert len(attributes) == len(fields)
    required = {
        attribute: value
        for attribute, (kind, value) in zip(attributes, fields.values(), strict=True)
        if "mandatory" in kind
    }
    assert round_trip(module, module.All(**required)) == module.All(**required)
    everything = dict(required)
    for attribute, (kind, value) in zip(attributes, fields.values(), strict=True):
        if value is not None:
            everything[attribute] = value
        elif "inner" in kind:
            everything[attribute] = module.Inner(value=3)
        elif "colour" in kind:
            everything[attribute] = module.Colour.BLUE
    assert round_trip(module, module.All(**everything)) == module.All(**everything)


def declared(kind: str, number: int, name: str) -> str:
    """One line that declares something of this name."""
    return {
        "composite": f'<type name="{name}" class="composite" source="list" provides="cap">'
        f'<descriptor name="case:{number}:list" code="0x8:{number:#x}"/>'
        '<field name="value" type="uint" default="3"/></type>',
        "enum": f'<type name="{name}" class="restricted" source="uint">'
        '<choice name="value" value="1"/></type>',
        "alias": f'<type name="{name}" class="restricted" source="uint"/>',
        "definition": f'<definition name="{name}" value="1"/>',
        "capability": f'<type name="t-{number}" class="restricted" source="uint" '
        f'provides="{name}"/>',
        "choice": f'<type name="e-{number}" class="restricted" source="uint">'
        f'<choice name="{name}" value="1"/></type>',
    }[kind]


@pytest.mark.parametrize(
    "kind", ["composite", "enum", "alias", "definition", "capability", "choice"]
)
def test_anything_else_of_any_name(workshop, generated, kind: str) -> None:
    """What is not refused passes `mypy --strict`, and can be imported."""
    names = [name for name in NAMES if name[0] not in "0123456789" and "-" not in name]
    names += ["value-error", "read-value", "i64", "decode-any", "empty-composite", "code-uint"]
    lines = {number: declared(kind, number, name) for number, name in enumerate(names)}
    users = (
        '<type name="user" class="composite" source="list">'
        '<descriptor name="case:user:list" code="0x9:0x1"/>'
        '<field name="c" type="colour" default="red" mandatory="true"/>'
        '<field name="e" type="*" requires="either"/><field name="l" type="list"/>'
        '<field name="m" type="map"/><field name="d" type="decimal32" default="1.5"/>'
        '<field name="s" type="symbol" multiple="true"/></type>'
    )
    # Each mistake names a line; what stands there is taken away, and the rest must be good.
    text = "\n".join([*lines.values(), (COMMON + users).replace("\n", "")])
    path = workshop.types(text)
    numbers = list(lines)
    try:
        resolve(read_spec([workshop.base, workshop.spec]))
    except SpecError as error:
        for mistake in error.mistakes:
            assert mistake.at.path == str(path)
            lines.pop(numbers[mistake.at.line - 4], None)
    text = "\n".join([*lines.values(), (COMMON + users).replace("\n", "")])
    module = generated(text)
    assert round_trip(module, module.User(c=module.Colour.BLUE, s=["a"])).s == ["a"]
    assert len(lines) > len(names) // 4


@pytest.mark.parametrize("name", ["containers", "descriptor", "descriptors", "unions", "registry"])
def test_a_part_that_takes_a_name_of_generated_code(workshop, name: str) -> None:
    path = workshop.write(f'<amqp name="{name}"/>')
    result = workshop.generate()
    assert result.err.startswith(f"{path}:1: part {name} and the generator's own {name}")


@pytest.mark.parametrize("character", ['"', "'", "\\", "{x}", "\n", "\x7f"])
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('<type name="x@" class="restricted" source="uint"/>', 4),
        ('<type name="x" class="restricted" source="uint" provides="y@y"/>', 4),
        ('<definition name="x@" value="1"/>', 4),
        ('<type name="x" class="restricted" source="uint">'
         '<choice name="y@y" value="1"/></type>', 4),
        ('<type name="x" class="composite" source="list">'
         '<descriptor name="y@y" code="0x1:0x1"/></type>', 4),
        ('<type name="x" class="composite" source="list">'
         '<descriptor name="y" code="0x1:0x1"/><field name="z@" type="uint"/></type>', 4),
    ],
)  # fmt: skip
def test_a_character_that_code_cannot_quote(workshop, character: str, text: str, line: int) -> None:
    for char, entity in {'"': "&quot;", "\n": "&#10;", "\x7f": "&#127;"}.items():
        character = character.replace(char, entity)
    path = workshop.types(text.replace("@", character))
    result = workshop.generate("--no-verify")
    assert result.status == 1
    assert result.err.startswith(f"{path}:{line}: "), result.err
    assert "has a character that no name may have" in result.err


def test_several_capabilities_that_are_called_as_one(workshop) -> None:
    path = workshop.types(
        '<type name="t" class="restricted" source="uint" provides="a, b, a-or-b"/>\n'
        '<type name="c" class="composite" source="list"><descriptor name="c" code="0x1:0x1"/>'
        '<field name="f" type="*" requires="a, b"/></type>'
    )
    result = workshop.generate("--no-verify")
    assert result.err.startswith(f"{path}:5: capability a or b and capability a-or-b are both")


@pytest.mark.parametrize("provides", ["", ' provides="p"'])
def test_a_default_is_the_choice_of_that_name_before_one_of_that_value(
    generated, provides: str
) -> None:
    module = generated(
        f'<type name="t" class="restricted" source="symbol"{provides}><choice name="c" value="a"/>'
        '<choice name="a" value="b"/><choice name="b" value="c"/></type>'
        '<type name="user" class="composite" source="list"><descriptor name="u" code="0x1:0x1"/>'
        '<field name="f" type="t" default="a"/></type>'
    )
    assert module.User().f == "b"
