"""The wire-level differences between two specs, and which of them break peers.

The question is: can a peer built from the old spec go on talking to one built from the new?
Labels, docs, the order of files and the names of aliases are not on the wire and not compared.

- New types, definitions, provided capabilities and choices of open types are compatible; removed
  ones break. A type that only names another one (`seconds` for `uint`) may come and go.
- A field appended to a composite is compatible unless it is mandatory. Any other insertion,
  removal, move or renaming breaks: fields are known by their position.
- A changed wire type, `requires`, `mandatory` or `multiple` breaks, in either direction: one of the
  peers sends what the other does not take.
- A changed default breaks: null on the wire means another value to each peer.
- A changed class, source, descriptor, encoding or value of a choice breaks, and so does one more
  encoding or one more choice of a closed type: the old peer refuses what the new one may send.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from codegen.literals import parse
from codegen.model import Field, Type
from codegen.resolve import Resolved, chosen, closed_choice


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
            alias = wire(old, name) == wire(old, type_.source or "") and not type_.provides
            changes.append(Change(name, "type removed", type_.cls, "", not alias))
        else:
            changes += _Pair(old, new, type_, other).changes()
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


def wire(resolved: Resolved, name: str) -> str:
    """What a type looks like on the wire, whatever it is called."""
    type_ = resolved.types.get(name)
    if type_ is None or type_.descriptors or type_.choices:
        return name
    keys = resolved.map_keys(name)
    return resolved.base(name) + (f" with {keys} keys" if keys else "")


class _Pair:
    """One type in both specs."""

    def __init__(self, old: Resolved, new: Resolved, before: Type, after: Type) -> None:
        self.specs = (old, new)
        self.before = before
        self.after = after
        self.name = before.name
        self.found: list[Change] = []

    def changes(self) -> list[Change]:
        """Every difference, from the outside in."""
        before, after = self.before, self.after
        self._changed("", "class", before.cls, after.cls)
        self._type("", "source", before.source or "", after.source or "")
        self._descriptor()
        self._members(
            "encoding",
            {f"{e.code:#04x}": f"{e.category}, width {e.width}" for e in before.encodings},
            {f"{e.code:#04x}": f"{e.category}, width {e.width}" for e in after.encodings},
            addition_breaks=True,
        )
        self._fields()
        self._members(
            "choice",
            {choice.name: choice.value for choice in before.choices},
            {choice.name: choice.value for choice in after.choices},
            addition_breaks=closed_choice(before) or not before.choices,
        )
        for word in sorted({*before.provides, *after.provides}):
            if word not in after.provides:
                self._note("", "provides removed", word, "", True)
            elif word not in before.provides:
                self._note("", "provides added", "", word, False)
        return self.found

    def _note(self, member: str, what: str, old: str, new: str, breaking: bool) -> None:
        where = f"{self.name}.{member}" if member else self.name
        self.found.append(Change(where, what, old, new, breaking))

    def _changed(self, member: str, what: str, old: str, new: str) -> None:
        if old != new:
            self._note(member, what, old, new, True)

    def _type(self, member: str, what: str, old: str, new: str) -> None:
        if old != new:
            breaking = wire(self.specs[0], old) != wire(self.specs[1], new)
            self._note(member, what, old, new, breaking)

    def _descriptor(self) -> None:
        old, new = self.before.descriptor, self.after.descriptor
        if old is None or new is None:
            shown = [f"{d.name} {_code(d.code)}" if d is not None else "" for d in (old, new)]
            self._changed("", "descriptor", shown[0], shown[1])
            return
        self._changed("", "descriptor name", old.name or "", new.name or "")
        self._changed("", "descriptor code", _code(old.code), _code(new.code))

    def _members(
        self, what: str, old: dict[str, str], new: dict[str, str], *, addition_breaks: bool
    ) -> None:
        for name, value in old.items():
            if name not in new:
                self._note(name, f"{what} removed", value, "", True)
            else:
                self._changed(name, what, value, new[name])
        for name, value in new.items():
            if name not in old:
                self._note(name, f"{what} added", "", value, addition_breaks)

    def _fields(self) -> None:
        old, new = self.before.fields, self.after.fields
        for index, (before, after) in enumerate(zip(old, new, strict=False)):
            if before.name != after.name:
                shown = [f"{index}: {before.name}", f"{index}: {after.name}"]
                self._note(before.name, "field", shown[0], shown[1], True)
            else:
                self._field(before, after)
        shared = min(len(old), len(new))
        for index, field in enumerate(old[shared:], shared):
            self._note(field.name, "field removed", f"{index}: {field.type}", "", True)
        for index, field in enumerate(new[shared:], shared):
            shown_type = f"{index}: {field.type}"
            self._note(field.name, "field added", "", shown_type, field.mandatory)

    def _field(self, old: Field, new: Field) -> None:
        name = old.name
        self._type(name, "type", old.type, new.type)
        self._changed(name, "requires", _words(old.requires), _words(new.requires))
        before, after = _default(self.specs[0], old), _default(self.specs[1], new)
        if before != after:
            self._note(name, "default", old.default or "", new.default or "", True)
        self._changed(name, "mandatory", str(old.mandatory).lower(), str(new.mandatory).lower())
        self._changed(name, "multiple", str(old.multiple).lower(), str(new.multiple).lower())


def _words(requires: tuple[str, ...]) -> str:
    return ", ".join(sorted(requires))


def _code(code: int | None) -> str:
    return "" if code is None else f"0x{code >> 32:08x}:0x{code & 0xFFFFFFFF:08x}"


def _default(resolved: Resolved, field: Field) -> object:
    """The value a default stands for: `none` and `0` may be the same choice."""
    if field.default is None:
        return None
    type_ = resolved.types[field.type]
    text = chosen(type_, field.default).value if type_.choices else field.default
    return parse(text, resolved.base(field.type))
