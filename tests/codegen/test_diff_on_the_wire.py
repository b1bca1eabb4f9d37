"""Each verdict of `diff` is what happens: both versions are generated and read each other."""

from __future__ import annotations

import copy
import re
import shutil
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ferrymq_codegen.amqp_1_0.diff import compare
from ferrymq_codegen.amqp_1_0.read import read_spec
from ferrymq_codegen.amqp_1_0.resolve import Resolved, resolve
from ferrymq_codegen.changes import Change
from ferrymq_codegen.mistakes import SpecError
from tests.codegen.test_diff import CASES, OLD
from tests.codegen.versions import Version, breaks
from tests.support.lanes import amount

ROOT = Path(__file__).resolve().parents[2]
PART = '<amqp name="case"><section name="s">{}</section></amqp>'
_numbers = count()


def parsed(text: str, folder: Path) -> Resolved:
    folder.mkdir()
    shutil.copy(ROOT / "spec" / "types.xml", folder)
    (folder / "case.xml").write_text(PART.format(text), "utf-8")
    return resolve(read_spec([folder]))


def confirm(old: str, new: str) -> list[Change]:
    """Compare two specs, and hold the verdicts against what their packages do."""
    number = next(_numbers)
    with TemporaryDirectory() as name:
        folder = Path(name)
        specs = parsed(old, folder / "old"), parsed(new, folder / "new")
        before = Version(specs[0], folder, f"before_{number}")
        after = Version(specs[1], folder, f"after_{number}")
        try:
            changes = compare(*specs)
            broken = breaks(after, before), breaks(before, after)
        finally:
            before.forget()
            after.forget()
    said = [c.old_reads_new for c in changes if c.old_reads_new]
    assert bool(broken[0]) == bool(said), ("old reads new", broken[0], changes)
    said = [c.new_reads_old for c in changes if c.new_reads_old]
    assert bool(broken[1]) == bool(said), ("new reads old", broken[1], changes)
    return changes


def keep(text: str, *others: str) -> str:
    """A composite that no change touches, so that each of these types is somewhere on the wire."""
    restricted = r'<type name="([^"]+)" class="restricted"'
    here, *there = (re.findall(restricted, t) for t in (text, *others))
    held = [name for name in sorted(here) if all(name in names for names in there)]
    fields = "".join(f'<field name="f-{n}" type="{n}"/>' for n in held)
    return (
        f'{text}<type name="keep" class="composite" source="list">'
        f'<descriptor name="k" code="0xf:0xf"/>{fields}</type>'
    )


@pytest.mark.parametrize("name", [name for name in CASES if "encoding" not in name])
def test_the_verdicts_on_single_changes(name: str) -> None:
    before, after, _ = CASES[name]
    new = OLD.replace(before, after, 1) if before else OLD
    confirm(keep(OLD, new), keep(new, OLD))


def composite(name: str, code: int, provides: str, *fields: str) -> dict[str, Any]:
    return {
        "kind": "composite",
        "name": name,
        "code": code,
        "symbol": f"case:{code}",
        "provides": provides,
        "fields": [dict(zip(("name", "rest"), f.split(" ", 1), strict=True)) for f in fields],
    }


def restricted(name: str, source: str, provides: str = "", **more: Any) -> dict[str, Any]:
    return {"kind": "restricted", "name": name, "source": source, "provides": provides, **more}


SPEC = [
    restricted("alias", "uint"),
    restricted("closed", "ubyte", choices={"x": "0", "y": "1", "z": "2"}),
    restricted("flag", "boolean", choices={"on": "true", "off": "false"}),
    restricted("open", "symbol", "kind", choices={"x": "x", "y": "y"}),
    restricted("number", "ulong", "id"),
    restricted("text", "string", "id"),
    restricted("tag", "symbol", "event", code=1, symbol="case:1"),
    restricted(
        "level", "ubyte", "event", code=2, symbol="case:2", choices={"low": "1", "high": "2"}
    ),
    composite("accepted", 3, "state, outcome"),
    composite("received", 4, "state", 'at type="ulong" mandatory="true"'),
    composite("inner", 5, "", 'a type="string"', 'b type="closed" default="x"'),
    composite(
        "order", 6, "event",
        'name type="string" mandatory="true"', 'count type="uint" default="1"',
        'state type="*" requires="state"', 'id type="*" requires="id"', 'extra type="*"',
        'inner type="inner"', 'tags type="symbol" multiple="true"', 'closed type="closed"',
        'memo type="string"',
    ),
    composite(
        "begin", 7, "frame",
        'handle type="uint" mandatory="true"', 'mode type="closed" default="y"',
        'outcome type="*" requires="outcome, state"', 'more type="boolean" default="false"',
        'parts type="inner" multiple="true"', 'memo type="symbol"',
    ),
    composite("end", 8, "frame", 'error type="inner"'),
]  # fmt: skip


def xml(spec: list[dict[str, Any]]) -> str:
    text = ""
    for item in spec:
        cls = item["kind"]
        source = item.get("source", "list")
        provides = f' provides="{item["provides"]}"' if item["provides"] else ""
        text += f'<type name="{item["name"]}" class="{cls}" source="{source}"{provides}>'
        if "code" in item:
            text += f'<descriptor name="{item["symbol"]}" code="0x1:{item["code"]:#x}"/>'
        for field in item.get("fields", []):
            text += f'<field name="{field["name"]}" {field["rest"]}/>'
        for name, value in item.get("choices", {}).items():
            text += f'<choice name="{name}" value="{value}"/>'
        text += "</type>\n"
    return text


RESTS = [
    'type="string"', 'type="string" mandatory="true"', 'type="string" default="d"',
    'type="uint"', 'type="uint" default="1"', 'type="uint" default="2"', 'type="alias"',
    'type="uint" multiple="true"', 'type="symbol" multiple="true"', 'type="symbol"',
    'type="closed"', 'type="closed" default="x"', 'type="closed" default="y"', 'type="ubyte"',
    'type="flag"', 'type="boolean"', 'type="boolean" default="true"', 'type="*"',
    'type="*" mandatory="true"', 'type="*" requires="id"', 'type="*" requires="state"',
    'type="*" requires="outcome"', 'type="*" requires="outcome, state"',
    'type="*" requires="event"', 'type="*" requires="kind"', 'type="open"',
    'type="open" default="x"', 'type="inner"',
    'type="inner" mandatory="true"', 'type="inner" multiple="true"', 'type="tag"', 'type="level"',
    'type="map"', 'type="list"', 'type="float" default="0.5"', 'type="decimal64" default="0.5"',
]  # fmt: skip
WORDS = ["", "state", "event", "id", "kind", "outcome", "frame", "other", "state, outcome"]


def change(draw: Any, spec: list[dict[str, Any]]) -> None:
    """Make one random change."""
    item = draw(st.sampled_from(spec))
    other = draw(st.sampled_from(["new", "more", "memo", "name"]))
    moves = ["provides", "add type", "remove type", "rename type"]
    if "code" in item:
        moves += ["code", "symbol"]
    fields = item.get("fields")
    if fields is not None:
        moves += ["append", "append", "insert"]
        if fields:
            moves += [
                "remove",
                "remove last",
                "rename",
                "rename",
                "move",
                "retype",
                "retype",
                "retype",
            ]
    else:
        moves += ["source", "choice added"]
        if item.get("choices"):
            moves += [
                "choice added",
                "choice removed",
                "choice renamed",
                "choice changed",
                "no choices",
            ]
    move = draw(st.sampled_from(moves))
    if move == "provides":
        item["provides"] = draw(st.sampled_from(WORDS))
    elif move == "add type":
        word = draw(st.sampled_from(WORDS))
        added = [
            composite(other, 20, word, 'a type="string"'),
            restricted(other + "-value", draw(st.sampled_from(["uint", "binary", "string"])), word),
        ]
        spec.append(draw(st.sampled_from(added)))
    elif move == "remove type":
        spec.remove(item)
    elif move == "rename type":
        item["name"] = other if fields is not None else other + "-value"
    elif move == "code":
        item["code"] = 21
    elif move == "symbol":
        item["symbol"] = "case:other"
    elif move == "source":
        item["source"] = draw(st.sampled_from(["uint", "ubyte", "string", "symbol", "ulong"]))
    elif move.startswith("choice") or move == "no choices":
        choices = item.setdefault("choices", {})
        name = draw(st.sampled_from(list(choices))) if choices else ""
        value = draw(st.sampled_from(["0", "1", "2", "3", "true"]))
        if move == "no choices":
            del item["choices"]
        elif move == "choice added":
            choices[draw(st.sampled_from(["w", "v"]))] = value
        elif move == "choice removed":
            del choices[name]
        elif move == "choice renamed":
            item["choices"] = {"w" if n == name else n: v for n, v in choices.items()}
        elif item["name"] != "open":
            choices[name] = value
    elif fields is not None:
        rest = draw(st.sampled_from(RESTS))
        at = draw(st.integers(0, max(len(fields) - 1, 0)))
        if move == "append":
            fields.append({"name": other, "rest": rest})
        elif move == "insert":
            fields.insert(at, {"name": other, "rest": rest})
        elif move == "remove":
            del fields[at]
        elif move == "remove last":
            fields.pop()
        elif move == "rename":
            fields[at]["name"] = other
        elif move == "move":
            fields.insert(at, fields.pop())
        else:
            fields[at]["rest"] = rest


# Each example generates two packages.
@settings(
    max_examples=settings().max_examples // amount(8, 4),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(st.data())
def test_the_verdicts_on_random_changes(data: st.DataObject) -> None:
    old = copy.deepcopy(SPEC)
    new = copy.deepcopy(SPEC)
    for _ in range(data.draw(st.integers(0, 2))):
        change(data.draw, old)
    for _ in range(data.draw(st.integers(1, 2))):
        change(data.draw, new)
    texts = keep(xml(old), xml(new)), keep(xml(new), xml(old))
    try:
        with TemporaryDirectory() as name:
            for index, text in enumerate(texts):
                parsed(text, Path(name) / str(index))
    except SpecError:
        assume(False)
    confirm(*texts)
