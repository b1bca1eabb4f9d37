"""The paths of requests: which entities they name."""

from __future__ import annotations

from typing import NamedTuple

from ferrymq_servicebus.administration.errors import HttpError

_MOST = 1024


class AdministrationPath(NamedTuple):
    """What a path names.

    `kind` is ``namespace``, ``queues``, ``topics``, ``entity``, ``subscriptions``,
    ``subscription``, ``rules`` or ``rule``; the other fields are empty if it has none.
    """

    kind: str
    entity: str = ""
    subscription: str = ""
    rule: str = ""


def parse_path(path: str) -> AdministrationPath:
    """Return what a path names; words of the protocol are matched without case. Raises `HttpError`
    (400 or 404)."""
    if len(path) > _MOST or any(character < " " for character in path):
        raise HttpError(400, "the path is too long or has invisible characters")
    parts = path.strip("/").split("/")
    words = [part.lower() for part in parts]
    if not all(parts):
        raise HttpError(400, "the path has an empty segment")
    if words == ["$namespaceinfo"]:
        return AdministrationPath("namespace")
    if words in (["$resources", "queues"], ["$resources", "topics"]):
        return AdministrationPath(words[1])
    if words[0].startswith("$"):
        raise HttpError(404, f"there is nothing at {path[:100]!r}")
    if len(parts) > 4 and words[-2] == "rules" and words[-4] == "subscriptions":
        return AdministrationPath("rule", "/".join(parts[:-4]), parts[-3], parts[-1])
    if len(parts) > 3 and words[-1] == "rules" and words[-3] == "subscriptions":
        return AdministrationPath("rules", "/".join(parts[:-3]), parts[-2])
    if len(parts) > 2 and words[-2] == "subscriptions":
        return AdministrationPath("subscription", "/".join(parts[:-2]), parts[-1])
    if len(parts) > 1 and words[-1] == "subscriptions":
        return AdministrationPath("subscriptions", "/".join(parts[:-1]))
    return AdministrationPath("entity", "/".join(parts))
