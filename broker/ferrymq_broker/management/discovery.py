"""Operations of the management node itself: lists of entities, types, attributes, operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ferrymq_broker.management.entity import COMMON, EntityType
from ferrymq_broker.management.errors import BAD_REQUEST, ManagementError
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.management.sliced_query import ROWS, Steps
from ferrymq_broker.management.sorting import sorted_part
from ferrymq_codec.scalars import Int

# The most entities in one answer to a QUERY: with all attributes, and with some of them as many as
# have `VALUES` values. Clients use an offset to get more.
PAGE: Final = 1000
NARROW_PAGE: Final = 5000
VALUES: Final = 50_000


class Discovery:
    """Operations on the management node itself (AMQP Management draft, Management Nodes)."""

    def __init__(self, types: dict[str, EntityType], find: Callable[[str], EntityType]) -> None:
        self._types = types
        self._find = find

    def operations(self) -> dict[str, Operation]:
        """Return the operations by name."""
        return {
            "QUERY": Operation(
                self.query, ("entityType", "offset", "count", "attributeNames", "sort")
            ),
            "GET-TYPES": Operation(self.get_types, ("entityType",)),
            "GET-ATTRIBUTES": Operation(self.get_attributes, ("entityType",)),
            "GET-OPERATIONS": Operation(self.get_operations, ("entityType",)),
            "GET-ANNOTATIONS": Operation(self.get_annotations, ("entityType",)),
            "GET-MGMT-NODES": Operation(self.get_nodes),
        }

    def query(self, call: Call) -> Steps[Result]:
        """Handle QUERY: return attributes of many entities, as a table.

        Results are sorted by type and identity, so that pages fit together, and within a type by
        the attribute `sort` if there is one. The property `count` is the number of results in this
        answer, `total` the number of all. Entities that the party may not READ are left out, and
        not counted.
        """
        offset = call.number("offset", 0)
        types = self._selected(call)
        names = _attribute_names(call)
        sort, descending = _sort_of(call, types)
        most = min(max(VALUES // len(names), PAGE), NARROW_PAGE) if names else PAGE
        count = min(call.number("count", PAGE), most)
        total = 0
        found: list[dict[str, object]] = []
        for type in types:
            identities = yield from type.sight(call.party)
            yield None
            before = total
            total += len(identities)
            start = max(0, offset - before)
            stop = max(0, offset + count - before)
            if sort:
                value = _values_of(type, identities, sort)
                page = yield from sorted_part(identities, value, descending, start, stop)
            else:
                page = identities[start:stop]
            show = type.row_shower(page, names) if names else type.shower(page)
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


def _sort_of(call: Call, types: list[EntityType]) -> tuple[str, bool]:
    """Return the attribute to sort by, empty for none, and whether in descending order. Raises
    `ManagementError` if no entity has it."""
    wanted = call.text("sort", "")
    name = wanted.removeprefix("-")
    if wanted and name not in COMMON and not any(name in type.attributes for type in types):
        known = ", ".join(_columns(types, []))
        raise ManagementError(
            BAD_REQUEST, f"sort: there is no attribute {name[:200]!r}; the attributes are {known}"
        )
    return name, wanted != name


def _values_of(type: EntityType, identities: list[str], name: str) -> Callable[[str], object]:
    """Return a function that returns an attribute of each of these entities; None if it has
    none."""
    if name == "identity":
        return lambda identity: identity
    show = type.row_shower(identities, [name])

    def value(identity: str) -> object:
        attributes = show(identity)
        return None if attributes is None else type.complete(identity, attributes).get(name)

    return value


def _columns(types: list[EntityType], found: list[dict[str, object]]) -> list[str]:
    """Return the names of all attributes of these types, first those that all entities have."""
    names: dict[str, None] = dict.fromkeys(COMMON)
    for type in types:
        names.update(dict.fromkeys(type.attributes))
    for attributes in found:
        names.update(dict.fromkeys(attributes))
    return list(names)
