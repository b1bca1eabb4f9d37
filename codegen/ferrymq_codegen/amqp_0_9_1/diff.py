"""The differences between two definitions of AMQP 0-9-1, and what each of them breaks.

The questions are those of the comparison for AMQP 1.0: does the old side read what the new side
sends, does the new side read what the old side sends, does a program for the old Python types run
with the new ones? Fields have no names on the wire, only places, so a method has the same form as
another one if the elementary domains of its fields are the same.

Labels are not compared.
"""

from __future__ import annotations

from ferrymq_codegen.amqp_0_9_1.model import Class, Field, Method
from ferrymq_codegen.amqp_0_9_1.resolve import Protocol
from ferrymq_codegen.changes import Change

_UNKNOWN = "an unknown method"
_MISREAD = "taken for another form"
_REFUSED = "refused"
_GONE = "is gone"


def compare(old: Protocol, new: Protocol) -> list[Change]:
    """Return every difference, in the order of the old definitions, additions last."""
    changes = _constants(old, new)
    before = {cls.name: cls for cls in old.classes}
    after = {cls.name: cls for cls in new.classes}
    for name, cls in before.items():
        other = after.get(name)
        if other is None:
            changes.append(Change(name, "class removed", str(cls.index), "", "", _UNKNOWN, _GONE))
            continue
        if cls.index != other.index:
            texts = (str(cls.index), str(other.index))
            changes.append(Change(name, "index", *texts, _UNKNOWN, _UNKNOWN))
        changes += _properties(old, new, cls, other)
        changes += _methods(old, new, cls, other)
    for name, cls in after.items():
        if name not in before:
            changes.append(Change(name, "class added", "", str(cls.index), _UNKNOWN))
    return changes


def _constants(old: Protocol, new: Protocol) -> list[Change]:
    changes: list[Change] = []
    before = {constant.name: constant for constant in old.constants}
    after = {constant.name: constant for constant in new.constants}
    for name, constant in before.items():
        other = after.get(name)
        value = str(constant.value)
        if other is None:
            changes.append(Change(name, "constant removed", value, "", source=_GONE))
            continue
        if other.value != constant.value:
            texts = (value, str(other.value))
            changes.append(Change(name, "value", *texts, source="has another value"))
        if other.cls != constant.cls:
            what = "closes something else"
            changes.append(Change(name, "class", constant.cls, other.cls, what, what))
    for name, constant in after.items():
        if name not in before:
            changes.append(Change(name, "constant added", "", str(constant.value)))
    return changes


def _properties(old: Protocol, new: Protocol, before: Class, after: Class) -> list[Change]:
    changes: list[Change] = []
    for place in range(max(len(before.fields), len(after.fields))):
        if place >= len(before.fields):
            field = after.fields[place]
            where = f"{after.name}.{field.name}"
            kind = new.type_of(field)
            changes.append(Change(where, "property added", "", kind, "refused when set"))
        elif place >= len(after.fields):
            field = before.fields[place]
            where = f"{before.name}.{field.name}"
            kind = old.type_of(field)
            changes.append(
                Change(where, "property removed", kind, "", "", "refused when set", _GONE)
            )
        else:
            first, second = before.fields[place], after.fields[place]
            changes += _field(old, new, before.name, first, second, "property")
    return changes


def _field(
    old: Protocol, new: Protocol, path: str, before: Field, after: Field, what: str
) -> list[Change]:
    """Return the differences between two fields at the same place."""
    changes: list[Change] = []
    where = f"{path}.{before.name}"
    kinds = (old.type_of(before), new.type_of(after))
    if kinds[0] != kinds[1]:
        changes.append(Change(where, f"{what}'s type", *kinds, _MISREAD, _MISREAD, "other type"))
    if before.reserved != after.reserved:
        names = ["reserved" if field.reserved else field.name for field in (before, after)]
        gone = "" if before.reserved else _GONE
        ignored = "ignored when set"
        changes.append(
            Change(
                where,
                "reserved",
                names[0],
                names[1],
                "" if after.reserved else ignored,
                "" if before.reserved else ignored,
                gone,
            )
        )
    elif before.name != after.name and not before.reserved:
        changes.append(Change(where, "renamed", before.name, after.name, source="renamed"))
    limits = (_limits(old, before), _limits(new, after))
    if limits[0] != limits[1] and kinds[0] == kinds[1]:
        changes.append(
            Change(
                where,
                "asserts",
                ", ".join(sorted(limits[0])),
                ", ".join(sorted(limits[1])),
                "refused if not fulfilled" if limits[0] - limits[1] else "",
                "refused if not fulfilled" if limits[1] - limits[0] else "",
            )
        )
    return changes


def _limits(protocol: Protocol, field: Field) -> set[str]:
    """Return the asserts that the codec checks."""
    return {
        f"{one.check} {one.value}"
        for one in protocol.asserts(field)
        if one.check in ("length", "regexp")
    }


def _methods(old: Protocol, new: Protocol, before: Class, after: Class) -> list[Change]:
    changes: list[Change] = []
    others = {method.name: method for method in after.methods}
    for method in before.methods:
        path = f"{before.name}.{method.name}"
        other = others.pop(method.name, None)
        if other is None:
            index = str(method.index)
            changes.append(Change(path, "method removed", index, "", "", _UNKNOWN, _GONE))
        else:
            changes += _method(old, new, path, method, other)
    for method in others.values():
        path = f"{before.name}.{method.name}"
        changes.append(Change(path, "method added", "", str(method.index), _UNKNOWN))
    return changes


def _method(old: Protocol, new: Protocol, path: str, before: Method, after: Method) -> list[Change]:
    changes: list[Change] = []
    if before.index != after.index:
        texts = (str(before.index), str(after.index))
        changes.append(Change(path, "index", *texts, _UNKNOWN, _UNKNOWN))
    for what, one, two in (
        ("content", str(before.content), str(after.content)),
        ("synchronous", str(before.synchronous), str(after.synchronous)),
    ):
        if one != two:
            changes.append(Change(path, what, one, two, _MISREAD, _MISREAD))
    if sorted(before.sides) != sorted(after.sides):
        texts = (" ".join(sorted(before.sides)), " ".join(sorted(after.sides)))
        more = set(after.sides) - set(before.sides)
        less = set(before.sides) - set(after.sides)
        changes.append(
            Change(path, "received by", *texts, _REFUSED if more else "", _REFUSED if less else "")
        )
    if before.responses != after.responses:
        texts = (" ".join(before.responses), " ".join(after.responses))
        changes.append(Change(path, "responses", *texts, _REFUSED, _REFUSED))
    forms = [
        [protocol.type_of(field) for field in method.fields]
        for protocol, method in ((old, before), (new, after))
    ]
    if len(forms[0]) != len(forms[1]):
        texts = (" ".join(forms[0]), " ".join(forms[1]))
        names = [{f.name for f in m.fields if not f.reserved} for m in (before, after)]
        gone = f"{', '.join(sorted(names[0] - names[1]))} gone" if names[0] - names[1] else ""
        changes.append(Change(path, "fields", *texts, _REFUSED, _REFUSED, gone))
        return changes
    for first, second in zip(before.fields, after.fields, strict=True):
        changes += _field(old, new, path, first, second, "field")
    return changes
