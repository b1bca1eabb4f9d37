"""The differences between two configurations, setting by setting."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel, SecretStr

from ferrymq_broker.config.model import Config
from ferrymq_broker.config.section import kebab

# The place of a setting: keys, and names of entries of lists in brackets.
SettingPath = tuple[str, ...]

_SECRET: Final = "(secret)"
# The fields that tell the entries of a list apart; the first one that an entry has counts.
_NAMES: Final = ("topic", "name", "pattern", "id", "url", "issuer")


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting that differs. The values are plain: texts, numbers, booleans, lists and maps; None
    for a setting that is not there. A secret is not shown.

    `applied` is whether the new value is in force; otherwise it needs a restart of the broker.
    `note` says what the two values do not.
    """

    path: SettingPath
    before: object
    after: object
    applied: bool = False
    note: str = ""

    @property
    def setting(self) -> str:
        """The path as text: ``queue[orders].max-length``."""
        text = ""
        for part in self.path:
            text += part if part.startswith("[") or not text else f".{part}"
        return text

    def attributes(self) -> dict[str, object]:
        """Return the difference as a map."""
        return {
            "setting": self.setting,
            "before": self.before,
            "after": self.after,
            "applied": self.applied,
            "note": self.note,
        }


def differences(before: Config, after: Config) -> list[Difference]:
    """Return the settings that differ, in the order of the model."""
    return list(_of_values((), before, after))


def _of_values(path: SettingPath, before: object, after: object) -> Iterator[Difference]:
    if isinstance(before, BaseModel) and type(before) is type(after):
        yield from _of_maps(path, _fields(before), _fields(after))
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from _of_maps(path, before, after)
    elif _is_list(before) and _is_list(after) and before != after:
        assert isinstance(before, Sequence) and isinstance(after, Sequence)
        yield from _of_lists(path, before, after)
    elif before != after:
        yield Difference(path, plain(before), plain(after))


def _of_maps(
    path: SettingPath, before: Mapping[str, object], after: Mapping[str, object]
) -> Iterator[Difference]:
    for key in dict.fromkeys((*before, *after)):
        yield from _of_values((*path, kebab(key)), before.get(key), after.get(key))


def _of_lists(
    path: SettingPath, before: Sequence[object], after: Sequence[object]
) -> Iterator[Difference]:
    # The order of rules counts.
    names = [_name(entry) for entry in (*before, *after) if path[-1] != "rule"]
    if names and all(names):
        old = {_name(entry): entry for entry in before}
        new = {_name(entry): entry for entry in after}
        if len(old) == len(before) and len(new) == len(after):
            for name in dict.fromkeys((*old, *new)):
                yield from _of_values((*path, f"[{name}]"), old.get(name), new.get(name))
            return
    if not any(isinstance(entry, BaseModel) for entry in (*before, *after)):
        yield Difference(path, plain(before), plain(after))
        return
    # Entries without names, such as rules: those that are not in both lists differ.
    old_texts, new_texts = ([repr(entry) for entry in entries] for entries in (before, after))
    matcher = difflib.SequenceMatcher(None, old_texts, new_texts, autojunk=False)
    for operation, left, left_end, right, right_end in matcher.get_opcodes():
        if operation == "equal":
            continue
        for offset in range(max(left_end - left, right_end - right)):
            old_at, new_at = left + offset, right + offset
            gone = before[old_at] if old_at < left_end else None
            come = after[new_at] if new_at < right_end else None
            at = old_at if come is None else new_at
            yield Difference((*path, f"[{at + 1}]"), plain(gone), plain(come))


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _fields(model: BaseModel) -> dict[str, object]:
    found = {name: getattr(model, name) for name in type(model).model_fields}
    return {**found, **(model.__pydantic_extra__ or {})}


def _name(entry: object) -> str:
    """Return the name by which an entry is the same in both lists; empty if it has none."""
    fields = _fields(entry) if isinstance(entry, BaseModel) else entry
    if not isinstance(fields, Mapping):
        return ""
    found = [fields.get(key) for key in _NAMES]
    texts = [value for value in found if isinstance(value, str) and value]
    if "topic" in fields and len(texts) > 1:
        return f"{texts[0]}::{texts[1]}"
    return texts[0] if texts else ""


def plain(value: object) -> object:
    """Return a value of the configuration as texts, numbers, booleans, lists and maps, without its
    secrets. Settings that have their defaults are left out of a table."""
    if isinstance(value, SecretStr):
        return _SECRET
    if isinstance(value, BaseModel):
        return {
            kebab(name): plain(entry)
            for name, entry in _fields(value).items()
            if name in value.model_fields_set
        }
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if _is_list(value):
        assert isinstance(value, Sequence)
        return [plain(entry) for entry in value]
    return str(value) if isinstance(value, Path) else value
