"""The differences between two specs, and what each of them breaks.

There are three questions. Can a peer that is built from the old spec read everything that a peer
built from the new spec sends (old reads new)? Is the same true the other way round (new reads old)?
Does a program that is written for the old Python types run with the new types (source)? A direction
breaks when the sender may send something that the reader refuses or takes for something else.
Everything that the sender's spec permits is considered, also encodings that our own encoder does
not write, such as a null for a default in a frame.

Labels, docs and the order of files are not compared.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ferrymq_codegen.amqp_1_0 import forms, kinds
from ferrymq_codegen.amqp_1_0.forms import Form
from ferrymq_codegen.amqp_1_0.literals import Literal, parse
from ferrymq_codegen.amqp_1_0.model import Field, Type
from ferrymq_codegen.amqp_1_0.resolve import Resolved, chosen, described, listed, written_whole
from ferrymq_codegen.amqp_1_0.views import field_view
from ferrymq_codegen.changes import Change


def compare(old: Resolved, new: Resolved) -> list[Change]:
    """Return every difference, in the order of the old spec, additions last."""
    changes: list[Change] = []
    renamed = _renamed(old, new)
    for name, type_ in old.types.items():
        other = new.types.get(renamed.get(name, name))
        if other is None:
            changes.append(Change(name, "type removed", type_.cls, "", source="is gone"))
            changes += _capabilities(old, new, type_, None)
        else:
            changes += _Pair(old, new, type_, other).changes()
    for name, type_ in new.types.items():
        if name not in old.types and name not in renamed.values():
            changes.append(Change(name, "type added", "", type_.cls))
            changes += _capabilities(old, new, None, type_)
    return changes + _definitions(old, new)


def _renamed(old: Resolved, new: Resolved) -> dict[str, str]:
    """Return the described types that have another name in the new spec, found by their
    descriptors."""
    codes = {
        t.descriptors[0].code: name
        for name, t in new.types.items()
        if described(t) and name not in old.types
    }
    return {
        name: codes[t.descriptors[0].code]
        for name, t in old.types.items()
        if described(t) and name not in new.types and t.descriptors[0].code in codes
    }


def _definitions(old: Resolved, new: Resolved) -> list[Change]:
    before, after = _values(old), _values(new)
    changes: list[Change] = []
    for name, value in before.items():
        if name not in after:
            changes.append(Change(name, "definition removed", value, "", source="is gone"))
        elif after[name] != value:
            changes.append(
                Change(name, "definition", value, after[name], source="has another value")
            )
    for name, value in after.items():
        if name not in before:
            changes.append(Change(name, "definition added", "", value))
    return changes


def _values(resolved: Resolved) -> dict[str, str]:
    return {
        f"{part.name}.{definition.name}": definition.value
        for part in resolved.spec.parts
        for definition in part.definitions()
    }


def _capabilities(
    old: Resolved, new: Resolved, before: Type | None, after: Type | None
) -> list[Change]:
    """Compare the capabilities of a type. A capability that the reader does not know is required by
    no field there, so no value can be refused because of it."""
    had = before.provides if before is not None else ()
    has = after.provides if after is not None else ()
    changes: list[Change] = []
    for word in sorted({*had, *has}):
        if word not in has and before is not None:
            refused = _unknown(new, word, forms.of_type(old, before.name))
            gone = f"is no {word} any more"
            changes.append(
                Change(before.name, "provides removed", word, "", "", refused, source=gone)
            )
        elif word not in had and after is not None:
            refused = _unknown(old, word, forms.of_type(new, after.name))
            changes.append(Change(after.name, "provides added", "", word, refused))
    return changes


def _unknown(reader: Resolved, word: str, sent: Form) -> str:
    providers = reader.capabilities.get(word)
    if providers is None or forms.of_union(reader, providers).takes(sent):
        return ""
    return f"refused as {word}"


class _Pair:
    """A type in both specs."""

    def __init__(self, old: Resolved, new: Resolved, before: Type, after: Type) -> None:
        self.old = old
        self.new = new
        self.before = before
        self.after = after
        self.found: list[Change] = []

    def changes(self) -> list[Change]:
        """Return every difference, from the outside in."""
        before, after = self.before, self.after
        if before.name != after.name:
            self._note("", "type renamed", (before.name, after.name), source="is renamed")
        if before.cls != after.cls:
            self._note("", "class", (before.cls, after.cls), _BOTH, "is another class")
        elif before.cls == "restricted":
            self._source()
        self._descriptor()
        self._encodings()
        self._fields()
        if before.cls == after.cls == "restricted":
            self._choices()
        return self.found + _capabilities(self.old, self.new, before, after)

    def _note(
        self,
        member: str,
        what: str,
        shown: tuple[str, str],
        breaks: tuple[str, str] = ("", ""),
        source: str = "",
    ) -> None:
        """Record a difference: the values of both sides, and the break in each direction."""
        where = f"{self.before.name}.{member}" if member else self.before.name
        self.found.append(Change(where, what, *shown, *breaks, source))

    def _source(self) -> None:
        shown = (self.before.source or "", self.after.source or "")
        if shown[0] == shown[1]:
            return
        before = forms.content(self.old, self.before)
        after = forms.content(self.new, self.after)
        breaks = (
            "" if before.takes(after) else "refused",
            "" if after.takes(before) else "refused",
        )
        was = kinds.plain(self.old, self.before.name).python
        now = kinds.plain(self.new, self.after.name).python
        self._note("", "source", shown, breaks, _typed(was, now))

    def _descriptor(self) -> None:
        old, new = self.before.descriptor, self.after.descriptor
        if old is not None and new is not None:
            if old.name != new.name:
                shown = (old.name or "", new.name or "")
                self._note("", "descriptor name", shown, (_SYMBOL, _SYMBOL))
            if old.code != new.code:
                shown = (_code(old.code), _code(new.code))
                self._note("", "descriptor code", shown, _BOTH)
        elif old is not None:
            shown = (f"{old.name} {_code(old.code)}", "")
            self._note("", "descriptor", shown, _BOTH, "is no class any more")
        elif new is not None:
            shown = ("", f"{new.name} {_code(new.code)}")
            self._note("", "descriptor", shown, _BOTH, "is a class")

    def _encodings(self) -> None:
        old = {f"{e.code:#04x}": f"{e.category}, width {e.width}" for e in self.before.encodings}
        new = {f"{e.code:#04x}": f"{e.category}, width {e.width}" for e in self.after.encodings}
        for code, layout in old.items():
            if code not in new:
                self._note(code, "encoding removed", (layout, ""), ("", _ENCODING))
            elif new[code] != layout:
                self._note(code, "encoding", (layout, new[code]), (_ENCODING, _ENCODING))
        for code, layout in new.items():
            if code not in old:
                self._note(code, "encoding added", ("", layout), (_ENCODING, ""))

    def _choices(self) -> None:
        self._openness()
        before, after = self.before, self.after
        had, has = forms.values(self.old, before), forms.values(self.new, after)
        old = {choice.name: choice.value for choice in before.choices}
        new = {choice.name: choice.value for choice in after.choices}
        names = {value: name for name, value in has.items()}
        renamed = {
            name: names[value]
            for name, value in had.items()
            if name not in has and value in names and names[value] not in had
        }
        for name, value in had.items():
            if name in renamed:
                shown = (name, renamed[name])
                self._note(name, "choice renamed", shown, source="is renamed")
            elif name not in has:
                lost = _OTHER_CHOICE if value in names else "refused" if listed(after) else ""
                self._note(name, "choice removed", (old[name], ""), ("", lost), "is gone")
            elif has[name] != value:
                shown = (old[name], new[name])
                both = (_OTHER_CHOICE, _OTHER_CHOICE)
                self._note(name, "choice", shown, both, "has another value")
        for name, value in has.items():
            if name not in had and name not in renamed.values():
                lost = _OTHER_CHOICE if value in had.values() else "refused"
                unknown = lost if listed(before) or value in had.values() else ""
                self._note(name, "choice added", ("", new[name]), (unknown, ""))

    def _openness(self) -> None:
        """Compare whether values other than the choices are accepted."""
        before, after = self.before, self.after
        if listed(before) == listed(after):
            return
        refused = []
        for spec, type_ in ((self.old, before), (self.new, after)):
            held = frozenset(forms.values(spec, type_).values())
            base = spec.base(type_.name)
            every = Form(plain=frozenset({(base, None)}))
            whole = Form(plain=frozenset({(base, held)})).takes(every)
            refused.append("refused when not listed" if listed(type_) and not whole else "")
        shown = ("listed", "any") if listed(before) else ("any", "listed")
        source = "is an enum" if listed(after) else "is an enum no more"
        self._note("", "values", shown, (refused[0], refused[1]), source)

    def _fields(self) -> None:
        old, new = self.before.fields, self.after.fields
        had, has = [f.name for f in old], [f.name for f in new]
        for index, (before, after) in enumerate(zip(old, new, strict=False)):
            shown = (f"{index}: {before.name}", f"{index}: {after.name}")
            if before.name == after.name:
                self._field(before, after)
            elif before.name in has or after.name in had:
                gone = "" if before.name in has else "is gone"
                both = (_OTHER_FIELD, _OTHER_FIELD)
                self._note(before.name, "field", shown, both, gone)
            else:
                self._note(before.name, "field renamed", shown, source="is renamed")
                self._field(before, after)
        shared = min(len(old), len(new))
        for index, field in enumerate(old[shared:], shared):
            breaks = (_missing(field), _unread(self.before, field))
            gone = "" if field.name in has else "is gone"
            self._note(field.name, "field removed", (f"{index}: {field.type}", ""), breaks, gone)
        for index, field in enumerate(new[shared:], shared):
            breaks = (_unread(self.after, field), _missing(field))
            needed = "must be given" if breaks[1] and field.name not in had else ""
            self._note(field.name, "field added", ("", f"{index}: {field.type}"), breaks, needed)

    def _field(self, old: Field, new: Field) -> None:
        """Compare two fields at the same position."""
        name = old.name
        first = len(self.found)
        reads = (
            _refused(self.old, old, self.new, new),
            _refused(self.new, new, self.old, old),
        )
        absent = (
            _absent(self.old, old, self.new, new),
            _absent(self.new, new, self.old, old),
        )
        if old.type != new.type:
            self._note(name, "type", (old.type, new.type), reads)
        words = (", ".join(sorted(old.requires)), ", ".join(sorted(new.requires)))
        if words[0] != words[1]:
            self._note(name, "requires", words, reads if old.type == new.type else _NOTHING)
        if _default(self.old, old) != _default(self.new, new):
            breaks = absent if old.mandatory == new.mandatory else _NOTHING
            self._note(name, "default", (old.default or "", new.default or ""), breaks)
        if old.mandatory != new.mandatory:
            self._note(name, "mandatory", (_flag(old.mandatory), _flag(new.mandatory)), absent)
        if old.multiple != new.multiple:
            shown = (_flag(old.multiple), _flag(new.multiple))
            breaks = (
                _ARRAY if new.multiple and not forms.of_field(self.old, old).anything else "",
                _ARRAY if old.multiple and not forms.of_field(self.new, new).anything else "",
            )
            self._note(name, "multiple", shown, breaks)
        source = self._in_python(old, new)
        if source and len(self.found) > first:
            self.found[first] = replace(self.found[first], source=source)

    def _in_python(self, old: Field, new: Field) -> str:
        before = field_view(self.old, self.before, old)
        after = field_view(self.new, self.after, new)
        if after.mandatory and not before.mandatory:
            return "must be given"
        return _typed(before.annotation, after.annotation)


_NOTHING: Final = ("", "")
_BOTH: Final = ("refused", "refused")
_SYMBOL: Final = "refused by symbol"
_ENCODING: Final = "refused in this encoding"
_ARRAY: Final = "an array is refused"
_OTHER_FIELD: Final = "taken for another field"
_OTHER_CHOICE: Final = "taken for another choice"


def _typed(before: str, after: str) -> str:
    return f"{before} is {after} now" if before != after else ""


def _strict(field: Field) -> bool:
    """Return whether null is refused; otherwise a default replaces it."""
    return field.mandatory and field.default is None


def _missing(field: Field) -> str:
    """Return the effect of a list that ends before the field."""
    return "refused without it" if _strict(field) else ""


def _unread(type_: Type, field: Field) -> str:
    """Return the effect of a field after the last one that the reader knows."""
    always = _strict(field) or (written_whole(type_) and field.default is not None)
    return "refused" if always else "refused when set"


def _refused(reader: Resolved, read: Field, writer: Resolved, sent: Field) -> str:
    if forms.of_field(reader, read).takes(forms.of_field(writer, sent)):
        return ""
    return "refused" if _strict(sent) else "refused when set"


def _absent(reader: Resolved, read: Field, writer: Resolved, sent: Field) -> str:
    """Return the effect of a null that the writer may send, or leave out."""
    if _strict(sent):
        return ""
    if _strict(read):
        return "refused when absent"
    return "misread when absent" if _default(reader, read) != _default(writer, sent) else ""


def _flag(value: bool) -> str:
    return str(value).lower()


def _code(code: int | None) -> str:
    return "" if code is None else f"0x{code >> 32:08x}:0x{code & 0xFFFFFFFF:08x}"


def _default(resolved: Resolved, field: Field) -> Literal | None:
    """Return the value that a default stands for: `none` and `0` may be the same choice."""
    if field.default is None:
        return None
    type_ = resolved.types[field.type]
    text = chosen(type_, field.default).value if type_.choices else field.default
    return parse(text, resolved.base(field.type))
