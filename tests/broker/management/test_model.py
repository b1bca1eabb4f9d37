"""Whatever is declared, changed and deleted: what a QUERY shows is what was answered."""

from __future__ import annotations

import contextlib

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ferrymq_broker.management import ADDRESS
from ferrymq_broker.management.setup import install
from tests.broker.harness import Network
from tests.broker.management.asker import Asker

NAMES = st.sampled_from(["a", "b", "c", "d"])
KINDS = st.sampled_from(["queue", "topic", "stream", "exchange"])
# For each kind settings that agree with each other, whichever are chosen.
SETTINGS = {
    "queue": st.fixed_dictionaries(
        {}, optional={"max-length": st.integers(0, 9), "groups": st.booleans()}
    ),
    "topic": st.fixed_dictionaries({}, optional={"max-subscriptions": st.integers(0, 9)}),
    "stream": st.fixed_dictionaries(
        {}, optional={"max-records": st.integers(0, 9), "max-age": st.integers(0, 9)}
    ),
    "exchange": st.fixed_dictionaries({}, optional={"alternate": st.sampled_from(["", "z"])}),
}
DEFAULTS: dict[str, dict[str, object]] = {
    "queue": {"max-length": 0, "groups": False},
    "topic": {"max-subscriptions": 0},
    "stream": {"max-records": 0, "max-age": 0},
    "exchange": {"alternate": ""},
}


class Declaring(RuleBasedStateMachine):
    """The broker against two dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Network()
        with contextlib.suppress(KeyError):
            self.net.space.remove(self.net.space.nodes[ADDRESS])
        install(self.net.space, self.net.broker)
        self.asker = Asker(self.net)
        self.nodes: dict[str, tuple[str, dict[str, object]]] = {}
        self.aliases: dict[str, str] = {}

    @rule(name=NAMES, kind=KINDS, data=st.data())
    def create(self, name: str, kind: str, data: st.DataObject) -> None:
        given = data.draw(SETTINGS[kind])
        wanted = (kind, {**DEFAULTS[kind], **given})
        if name in self.aliases:
            expected = 409
        elif name not in self.nodes:
            expected = 201
            self.nodes[name] = wanted
        else:
            expected = 200 if self.nodes[name] == wanted else 409
        assert self.asker.ask("CREATE", kind, name, given).status == expected

    @rule(name=NAMES, kind=KINDS, data=st.data())
    def update(self, name: str, kind: str, data: st.DataObject) -> None:
        given = data.draw(SETTINGS[kind])
        # An alias will do, but not one of a node of another kind.
        there = self.nodes.get(self.meant_by(name))
        expected = 404
        if there is not None and there[0] == kind:
            expected = 200
            there[1].update(given)
        assert self.asker.ask("UPDATE", kind, name, given).status == expected

    @rule(name=NAMES, kind=KINDS)
    def delete(self, name: str, kind: str) -> None:
        expected = 404
        if name in self.nodes and self.nodes[name][0] == kind:
            expected = 204
            del self.nodes[name]
        assert self.asker.ask("DELETE", kind, name).status == expected

    @rule(name=NAMES, address=NAMES)
    def alias(self, name: str, address: str) -> None:
        if self.leads_to(address, name):
            expected = 400
        elif name in self.aliases:
            expected = 200 if self.aliases[name] == address else 409
        elif name in self.nodes:
            expected = 409
        else:
            expected = 201
            self.aliases[name] = address
        assert self.asker.ask("CREATE", "alias", name, {"address": address}).status == expected

    def meant_by(self, name: str) -> str:
        """The address that an alias leads to, perhaps through others."""
        while name in self.aliases:
            name = self.aliases[name]
        return name

    def leads_to(self, address: str, name: str) -> bool:
        """Whether an alias `name` of the address would come back to itself."""
        while address != name and address in self.aliases:
            address = self.aliases[address]
        return address == name

    @rule(name=NAMES)
    def forget(self, name: str) -> None:
        expected = 204 if self.aliases.pop(name, None) is not None else 404
        assert self.asker.ask("DELETE", "alias", name).status == expected

    @invariant()
    def what_is_shown_is_what_there_is(self) -> None:
        for kind, defaults in DEFAULTS.items():
            rows = self.asker.query(kind, attributeNames=["name", *defaults])
            shown = {row.pop("name"): row for row in rows}
            shown.pop(self.asker.reply_to, None)
            assert shown == {
                name: attributes for name, (of, attributes) in self.nodes.items() if of == kind
            }
        aliases = self.asker.query("alias", attributeNames=["name", "address"])
        assert {row["name"]: row["address"] for row in aliases} == self.aliases


TestDeclaring = Declaring.TestCase
TestDeclaring.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
