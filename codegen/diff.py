"""The wire-level differences between two specs, and which of them break peers.

The question is: can a peer built from the old spec go on talking to one built from the new?
Names, order of files, labels and docs are not on the wire and are not compared. The rules:

- a new type, definition, encoding, choice of an open type or provided capability is compatible, a
  removed one breaks;
- a field appended at the end is compatible if it may be absent, any other insertion, removal,
  move or renaming breaks, because fields are known by position;
- a changed type, `requires`, `mandatory` or `multiple` of a field breaks, except that a field may
  become optional to send: no, the old peer insists on it, so that breaks too;
- a changed default breaks: null means another value than before;
- a changed descriptor, class, source or encoding breaks.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from codegen.model import Field, Type
from codegen.resolve import Resolved, closed_choice


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. `where` is a dotted path in the spec's names, `old` and `new` its values,
    empty on the side where there is nothing.
    """

    where: str
    what: str
    old: str
    new: str
    breaking: bool

    def as_dict(self) -> dict[str, str | bool]:
        """The change as JSON takes it."""
        return asdict(self)


def compare(old: Resolved, new: Resolved) -> list[Change]:
    """Every difference, in the order of the old spec, additions last."""
    changes: list[Change] = []
    for name, type_ in old.types.items():
        other = new.types.get(name)
        if other is None:
            changes.append(Change(name, "type removed", type_.cls, "", True))
        else:
            changes += _types(type_, other)
    for name, type_ in new.types.items():
        if name not in old.types:
            changes.append(Change(name, "type added", "", type_.cls, False))
    return changes + _definitions(old, new)


def _definitions(old: Resolved, new: Resolved) -> list[Change]:
    before, after = _values(old), _values(new)
    changes: list[Change] = []
    for name, value in before.items():
        if name not in after:
            changes.append(Change(name, "definition removed", value, "", True))
        elif after[name] != value:
            changes.append(Change(name, "definition", value, after[name], True))
    for name, value in after.items():
        if name not in before:
            changes.append(Change(name, "definition added", "", value, False))
    return changes


def _values(resolved: Resolved) -> dict[str, str]:
    return {
        f"{part.name}.{definition.name}": definition.value
        for part in resolved.spec.parts
        for definition in part.definitions()
    }


def _types(old: Type, new: Type) -> list[Change]:
    name = old.name
    changes = _values_of(name, [("class", old.cls, new.cls), ("source", old.source, new.source)])
    changes += _descriptors(old, new)
    changes += _encodings(old, new)
    changes += _fields(old, new)
    changes += _choices(old, new)
    for word in old.provides:
        if word not in new.provides:
            changes.append(Change(name, "provides removed", word, "", True))
    for word in new.provides:
        if word not in old.provides:
            changes.append(Change(name, "provides added", "", word, False))
    return changes


def _values_of(where: str, rows: list[tuple[str, str | None, str | None]]) -> list[Change]:
    return [
        Change(where, what, old or "", new or "", True) for what, old, new in rows if old != new
    ]


def _descriptors(old: Type, new: Type) -> list[Change]:
    before, after = old.descriptor, new.descriptor
    if before is None or after is None:
        if before is after:
            return []
        shown = [d.name or "" if d is not None else "none" for d in (before, after)]
        return [Change(old.name, "descriptor", shown[0], shown[1], True)]
    codes = [_code(before.code), _code(after.code)]
    return _values_of(
        old.name,
        [("descriptor name", before.name, after.name), ("descriptor code", codes[0], codes[1])],
    )


def _code(code: int | None) -> str:
    return "" if code is None else f"0x{code >> 32:08x}:0x{code & 0xFFFFFFFF:08x}"


def _encodings(old: Type, new: Type) -> list[Change]:
    before = {e.code: f"{e.category}, width {e.width}" for e in old.encodings}
    after = {e.code: f"{e.category}, width {e.width}" for e in new.encodings}
    changes = []
    for code, value in before.items():
        where = f"{old.name}.{code:#04x}"
        if code not in after:
            changes.append(Change(where, "encoding removed", value, "", True))
        elif after[code] != value:
            changes.append(Change(where, "encoding", value, after[code], True))
    for code, value in after.items():
        if code not in before:
            # The old peer cannot read what the new one may now send.
            changes.append(Change(f"{old.name}.{code:#04x}", "encoding added", "", value, True))
    return changes


def _fields(old: Type, new: Type) -> list[Change]:
    changes: list[Change] = []
    for index, (before, after) in enumerate(zip(old.fields, new.fields, strict=False)):
        where = f"{old.name}.{before.name}"
        if before.name != after.name:
            shown = [f"{index}: {before.name}", f"{index}: {after.name}"]
            changes.append(Change(where, "field", shown[0], shown[1], True))
        else:
            changes += _values_of(where, _attributes(before, after))
    shared = min(len(old.fields), len(new.fields))
    for index, field in enumerate(old.fields[shared:], shared):
        where = f"{old.name}.{field.name}"
        changes.append(Change(where, "field removed", f"{index}: {field.type}", "", True))
    for index, field in enumerate(new.fields[shared:], shared):
        where = f"{old.name}.{field.name}"
        changes.append(Change(where, "field added", "", f"{index}: {field.type}", field.mandatory))
    return changes


def _attributes(old: Field, new: Field) -> list[tuple[str, str | None, str | None]]:
    return [
        ("type", old.type, new.type),
        ("requires", ", ".join(sorted(old.requires)), ", ".join(sorted(new.requires))),
        ("default", old.default, new.default),
        ("mandatory", str(old.mandatory).lower(), str(new.mandatory).lower()),
        ("multiple", str(old.multiple).lower(), str(new.multiple).lower()),
    ]


def _choices(old: Type, new: Type) -> list[Change]:
    before = {choice.name: choice.value for choice in old.choices}
    after = {choice.name: choice.value for choice in new.choices}
    changes = []
    for name, value in before.items():
        where = f"{old.name}.{name}"
        if name not in after:
            changes.append(Change(where, "choice removed", value, "", True))
        elif after[name] != value:
            changes.append(Change(where, "choice", value, after[name], True))
    for name, value in after.items():
        if name not in before:
            # A closed choice is refused by whoever does not know it.
            breaking = closed_choice(old) or not old.choices
            changes.append(Change(f"{old.name}.{name}", "choice added", "", value, breaking))
    return changes
