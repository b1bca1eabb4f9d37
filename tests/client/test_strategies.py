"""`ferrymq.testing.strategies`: what they make is legal, and covers what a type may hold."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from librt.strings import BytesWriter

from ferrymq import Message
from ferrymq.testing import strategies
from ferrymq_codec import Array, Described, UInt
from ferrymq_codec.composite import Composite
from ferrymq_codec.reader import Reader
from ferrymq_codec.values import read_value, write_value
from ferrymq_types import registry
from ferrymq_types.messaging import Accepted, AmqpValue, Data, Header, Modified, Source
from ferrymq_types.schema import SCHEMAS
from ferrymq_types.transport import Attach, Open, Role

# The first example that `find` meets is enough: it need not be the smallest.
QUICK = settings(max_examples=2000, database=None, phases=[Phase.generate])
PAGE = Path(__file__).resolve().parents[2] / "docs" / "client" / "testing.md"


def after_the_wire(value: object) -> object:
    w = BytesWriter()
    write_value(w, value, "value")
    data = w.getvalue()
    return read_value(Reader(data, 0, len(data)), "value")


@given(strategies.values(described=True))
def test_every_value_is_equal_after_the_wire(value: object) -> None:
    assert after_the_wire(value) == value


def test_the_tests_on_the_page_pass() -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(code, PAGE.name, "exec", dont_inherit=True), names)
    tests = [one for name, one in names.items() if name.startswith("test_")]
    assert len(tests) == 3
    for test in tests:
        settings(max_examples=20, database=None)(test)()


def test_every_strategy_is_on_the_page() -> None:
    page = PAGE.read_text("utf-8")
    assert [name for name in strategies.__all__ if f"`{name}(" not in page] == []


@given(strategies.messages())
def test_every_message_is_equal_after_the_wire(message: Message) -> None:
    assert Message.decode(message.encode()) == message


@pytest.mark.parametrize("cls", registry.DESCRIPTORS, ids=lambda cls: cls.__name__)
@settings(max_examples=5)
@given(st.data())
def test_every_class_has_a_strategy(cls: type[Composite], data: st.DataObject) -> None:
    value = data.draw(strategies.composites(cls))
    assert type(value) is cls
    w = BytesWriter()
    value.encode(w)
    assert registry.decode_any(Reader(w.getvalue(), 0, len(w.getvalue())), "value") == value


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_type_has_a_strategy(name: str) -> None:
    if name == "null":
        return
    find(strategies.of_type(name), lambda _: True, settings=QUICK)


def test_fields_have_all_that_they_may_have() -> None:
    def some(cls: type[Any], condition: Any) -> None:
        find(strategies.composites(cls), condition, settings=QUICK)

    some(Open, lambda o: o.hostname is None)
    some(Open, lambda o: o.max_frame_size == 2**32 - 1)
    some(Attach, lambda a: a.role is Role.SENDER)
    some(Attach, lambda a: isinstance(a.source, Source))
    some(Source, lambda s: isinstance(s.default_outcome, Modified))
    some(Header, lambda h: h.priority == 255)
    some(Accepted, lambda _: True)
    for body in (bytes, str, Described, Array, UInt, list, dict):
        some(AmqpValue, lambda v, body=body: isinstance(v.value, body))


def test_messages_take_the_bodies_that_they_are_given() -> None:
    message = find(strategies.messages(st.just(b"x")), lambda _: True, settings=QUICK)
    assert message.body_sections == [Data(b"x")]


def test_what_is_not_generated_is_refused() -> None:
    class Own(Composite):
        pass

    with pytest.raises(LookupError, match="Own is not a generated class"):
        strategies.composites(Own)
    with pytest.raises(LookupError, match="ferrymq_types has no type nothing"):
        strategies.of_type("nothing")


def test_from_type_makes_legal_values_once_they_are_registered() -> None:
    code = """
from hypothesis import given, settings, strategies as st
from librt.strings import BytesWriter
from ferrymq import Message
from ferrymq.testing import strategies
from ferrymq_types.messaging import Header
strategies.register()
@settings(database=None)
@given(st.from_type(Header), st.from_type(Message))
def test(header, message):
    header.encode(BytesWriter())
    message.encode()
test()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_hypothesis_the_extra_is_named() -> None:
    code = "import sys; sys.modules['hypothesis'] = None; import ferrymq.testing.strategies"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "needs hypothesis: pip install 'ferrymq[testing]'" in done.stderr


def test_every_public_function_has_a_docstring_and_types() -> None:
    for name in strategies.__all__:
        function = getattr(strategies, name)
        assert inspect.getdoc(function)
        inner = inspect.unwrap(function)
        assert "return" in inner.__annotations__
