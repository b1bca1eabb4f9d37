"""The broker and the virtual host as entities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ferrymq import __version__
from ferrymq_broker.broker import Broker
from ferrymq_broker.config.apply.differences import plain
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.management.definitions import definitions_of
from ferrymq_broker.management.entity import EntityType
from ferrymq_broker.management.errors import CONFLICT, ManagementError
from ferrymq_broker.management.history import (
    ARGUMENTS,
    HISTORY,
    history_of,
    joined,
    rates_of_all,
    seconds_of,
)
from ferrymq_broker.management.live import LiveKeepers
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.management.sliced_query import Steps
from ferrymq_broker.management.workers import FIGURES, SAMPLES, OtherWorkers
from ferrymq_broker.nodes.link_terms import Party

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace


class BrokerEntities(EntityType):
    """The broker, as the only entity of its type, with the name ``broker``.

    Its figures are those of all virtual hosts, and of all workers; those of workers that do not
    answer are missing. The names of all virtual hosts are shown in the default one, and everywhere
    if the broker has no rules.
    """

    short = "broker"
    attributes: tuple[str, ...] = (
        "name",
        "product",
        "version",
        "virtual-hosts",
        "connections",
        "links",
        "held-bytes",
        "alarms",
        "connections-opened",
        "logins-refused",
        "logins-put-off",
        "links-refused",
        "settled-messages-dropped",
        "bytes-received",
        "bytes-sent",
        "in-rate",
        "out-rate",
        "oldest-age",
        "missing-workers",
    )

    def __init__(
        self,
        broker: Broker,
        space: AddressSpace,
        keepers: LiveKeepers | None = None,
        workers: OtherWorkers | None = None,
    ) -> None:
        self._broker = broker
        self._space = space
        self._workers = workers
        # The figures of the other workers when they were asked last.
        self._theirs: list[Mapping[str, Any]] = []
        self._missing: list[int] = []
        # What concerns all tenants is managed in the default virtual host alone.
        self._keepers = keepers if space is broker.default else None

    def operations(self) -> dict[str, Operation]:
        """Return READ and HISTORY, and in the default virtual host RELOAD, GET-CONFIGURATION and
        GET-DEFINITIONS."""
        operations = {
            "READ": Operation(self.read_all),
            HISTORY: Operation(self.history, ARGUMENTS),
        }
        if self._keepers is not None:
            operations["RELOAD"] = Operation(self.reload)
            operations["GET-CONFIGURATION"] = Operation(self.get_configuration)
            operations["GET-DEFINITIONS"] = Operation(self.get_definitions)
        return operations

    def read_all(self, call: Call) -> Steps[Result]:
        """Handle READ, with the figures of all workers."""
        call.expect_only()
        self.shown(call.required_name())
        yield from self._ask_workers()
        return Result(self.shown(call.name))

    def sight(self, party: Party) -> Steps[list[str]]:
        """Return what the party may see, after the other workers were asked."""
        found = self.visible(party)
        if found:
            yield from self._ask_workers()
        return found

    def _ask_workers(self) -> Steps[None]:
        if self._workers is None:
            return
        found = yield from self._answers_of(FIGURES)
        self._theirs = [found[number] for number in sorted(found)]
        self._missing = [number for number in self._workers.numbers if number not in found]

    def _answers_of(self, question: str, content: object = None) -> Steps[Mapping[int, Any]]:
        assert self._workers is not None
        answers = self._workers.ask(question, content)
        while not answers.over:
            yield True
        return answers.found

    def get_definitions(self, call: Call) -> Steps[Result]:
        """Handle GET-DEFINITIONS: return what the broker has, as a configuration states it."""
        call.expect_only()
        self.shown(call.required_name())
        assert self._keepers is not None
        found = yield from definitions_of(self._broker, self._keepers, self._workers)
        return Result({"definitions": found.document, "omitted": found.omitted})

    def get_configuration(self, call: Call) -> Result:
        """Handle GET-CONFIGURATION: return the settings that are in force, and how the file differs
        from them now."""
        call.expect_only()
        self.shown(call.required_name())
        assert self._keepers is not None
        keeper = self._keepers.config
        file, mistake = "", ""
        found: list[dict[str, object]] = []
        try:
            file, differences = keeper.compare()
            found = [each.attributes() for each in differences]
        except ConfigError as error:
            mistake = str(error)
        return Result(
            {
                "configuration": plain(keeper.in_force),
                "file": file,
                "error": mistake,
                "differences": found,
            }
        )

    def reload(self, call: Call) -> Result:
        """Handle RELOAD: read the configuration and the files that it names again, and apply what
        can change while the broker runs."""
        call.expect_only()
        self.shown(call.required_name())
        assert self._keepers is not None
        try:
            found = self._keepers.config.reload()
        except ConfigError as error:
            raise ManagementError(CONFLICT, str(error)) from None
        return Result({"differences": [each.attributes() for each in found]})

    def identities(self) -> list[str]:
        """Return the only identity."""
        return ["broker"]

    def history(self, call: Call) -> Steps[Result]:
        """Handle HISTORY: return the samples of the whole broker."""
        own = history_of(call, self._broker.history, self._broker.agenda)
        if self._workers is None:
            return own
        found = yield from self._answers_of(SAMPLES, seconds_of(call))
        parts = [found[number] for number in sorted(found) if found[number] is not None]
        body = own.body
        assert isinstance(body, dict)
        return Result(joined([body, *parts]))

    def _hosts(self) -> list[str]:
        broker = self._broker
        if broker.guarded and self._space is not broker.default:
            return [self._space.name]
        return sorted(broker.spaces)

    def show(self, identity: str) -> dict[str, object] | None:
        """Return the figures of the broker."""
        if identity not in ("broker", "self"):
            return None
        return {
            "name": "broker",
            "product": "ferrymq",
            "version": __version__,
            "virtual-hosts": self._hosts(),
            **_sums([figures_of(self._broker), *self._theirs]),
            "missing-workers": list(self._missing),
        }


def figures_of(broker: Broker) -> dict[str, object]:
    """Return the figures of the virtual hosts that this process serves."""
    counters = broker.counters
    return {
        "connections": len(broker.handlers),
        "links": len(broker.shared.names),
        "held-bytes": int(broker.agenda.held),
        "alarms": sorted(broker.alarms),
        "connections-opened": int(counters.connections_opened),
        "logins-refused": int(counters.logins_refused),
        "logins-put-off": int(counters.logins_put_off),
        "links-refused": int(counters.links_refused),
        "settled-messages-dropped": int(counters.messages_dropped),
        "bytes-received": int(counters.bytes_received),
        "bytes-sent": int(counters.bytes_sent),
        **rates_of_all(broker.history, broker.agenda),
    }


def _sums(figures: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    """Return the figures of several workers together."""
    if len(figures) == 1:
        return dict(figures[0])
    together: dict[str, object] = {}
    for name in figures[0]:
        values = [each[name] for each in figures if each.get(name) is not None]
        if name == "alarms":
            together[name] = sorted({alarm for alarms in values for alarm in alarms})
        elif not values:
            together[name] = None
        else:
            together[name] = max(values) if name == "oldest-age" else sum(values)
    return together


class VirtualHostEntities(EntityType):
    """The virtual host of the connection. Other virtual hosts are not visible."""

    short = "virtual-host"
    attributes: tuple[str, ...] = (
        "name",
        "nodes",
        "aliases",
        "connections",
        "max-nodes",
        "auto-create",
        "in-rate",
        "out-rate",
        "oldest-age",
    )

    def __init__(self, broker: Broker, space: AddressSpace) -> None:
        self._broker = broker
        self._space = space

    def operations(self) -> dict[str, Operation]:
        """Return READ and HISTORY."""
        return {**super().operations(), HISTORY: Operation(self.history, ARGUMENTS)}

    def history(self, call: Call) -> Result:
        """Handle HISTORY: return the samples of the virtual host."""
        return history_of(call, self._space.history, self._broker.agenda)

    def identities(self) -> list[str]:
        """Return the only identity."""
        return [self._space.name]

    def show(self, identity: str) -> dict[str, object] | None:
        """Return the figures of the virtual host."""
        space = self._space
        if identity not in (space.name, "self"):
            return None
        kinds: dict[str, int] = {}
        for node in space.nodes.values():
            kinds[node.kind] = kinds.get(node.kind, 0) + 1
        return {
            "name": space.name,
            "nodes": dict(sorted(kinds.items())),
            "aliases": len(space.aliases),
            "connections": sum(1 for h in self._broker.handlers if h.client.space is space),
            "max-nodes": int(space.max_nodes),
            "auto-create": space.auto_create is not None,
            **rates_of_all(space.history, self._broker.agenda),
        }
