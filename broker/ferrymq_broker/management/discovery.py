"""Operations of the management node itself: lists of entities, types, attributes, operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ferrymq_broker.management.entity import EntityType
from ferrymq_broker.management.errors import BAD_REQUEST, ManagementError
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.management.sliced_query import ROWS, Steps
from ferrymq_codec.scalars import Int

# The most entities in one answer to a QUERY. Clients use an offset to get more.
PAGE: Final = 1000


class Discovery:
    """Operations on the management node itself (AMQP Management draft, Management Nodes)."""

    def __init__(self, types: dict[str, EntityType], find: Callable[[str], EntityType]) -> None:
        self._types = types
        self._find = find

    def operations(self) -> dict[str, Operation]:
        """Return the operations by name."""
        return {
            "QUERY": Operation(self.query, ("entityType", "offset", "count", "attributeNames")),
            "GET-TYPES": Operation(self.get_types, ("entityType",)),
            "GET-ATTRIBUTES": Operation(self.get_attributes, ("entityType",)),
            "GET-OPERATIONS": Operation(self.get_operations, ("entityType",)),
            "GET-ANNOTATIONS": Operation(self.get_annotations, ("entityType",)),
            "GET-MGMT-NODES": Operation(self.get_nodes),
        }

    def query(self, call: Call) -> Steps[Result]:
        """Handle QUERY: return attributes of many entities, as a table.

        Results are sorted by type and identity, so that pages fit together. The property `count` is
        the number of results in this answer, `total` the number of all. Entities that the party may
        not READ are left out, and not counted.
        """
        offset = call.number("offset", 0)
        count = min(call.number("count", PAGE), PAGE)
        types = self._selected(call)
        names = _attribute_names(call)
        total = 0
        found: list[dict[str, object]] = []
        for type in types:
            identities = yield from type.sight(call.party)
            yield None
            before = total
            total += len(identities)
            start = max(0, offset - before)
            stop = max(0, offset + count - before)
            page = identities[start:stop]
            show = type.shower(page)
            for at, identity in enumerate(page, 1):
                attributes = show(identity)
                if attributes is not None:
                    found.append(type.complete(identity, attributes))
                if at % ROWS == 0:
                    yield None
        if not names:
            names = _columns(types, found)
            yield None
        rows: list[list[object]] = []
        for at, attributes in enumerate(found, 1):
            rows.append([attributes.get(name) for name in names])
            if at % (4 * ROWS) == 0:
                yield None
        return Result(
            {"attributeNames": names, "results": rows},
            properties={"count": Int(len(rows)), "total": Int(total)},
        )

    def get_types(self, call: Call) -> Result:
        """Handle GET-TYPES: return every type with its base types."""
        return Result({type.name: [type.base] for type in self._selected(call)})

    def get_attributes(self, call: Call) -> Result:
        """Handle GET-ATTRIBUTES: return the attributes of every type."""
        return Result({type.name: list(type.attributes) for type in self._selected(call)})

    def get_operations(self, call: Call) -> Result:
        """Handle GET-OPERATIONS: return the operations of every type with their arguments."""
        return Result(
            {
                type.name: {
                    name: list(operation.arguments) for name, operation in type.operations().items()
                }
                for type in self._selected(call)
            }
        )

    def get_annotations(self, call: Call) -> Result:
        """Handle GET-ANNOTATIONS: no type has annotations."""
        return Result({type.name: [] for type in self._selected(call)})

    def get_nodes(self, call: Call) -> Result:
        """Handle GET-MGMT-NODES: no other management node is known."""
        return Result([])

    def _selected(self, call: Call) -> list[EntityType]:
        """Return the requested type, or all types, sorted by name."""
        wanted = call.text("entityType", "")
        if not wanted:
            return [self._types[name] for name in sorted(self._types)]
        for type in self._types.values():
            if type.base == wanted:
                return [t for _, t in sorted(self._types.items()) if t.base == wanted]
        return [self._find(wanted)]


def _attribute_names(call: Call) -> list[str]:
    names = call.arguments.get("attributeNames") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ManagementError(BAD_REQUEST, "attributeNames: a list of strings is needed")
    return [str(name) for name in names]


def _columns(types: list[EntityType], found: list[dict[str, object]]) -> list[str]:
    """Return the names of all attributes of these types, first those that all entities have."""
    names = {"name": None, "identity": None, "type": None}
    for type in types:
        names.update(dict.fromkeys(type.attributes))
    for attributes in found:
        names.update(dict.fromkeys(attributes))
    return list(names)
