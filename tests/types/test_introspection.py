"""Python's own descriptions of the classes are the same on the compiled and the interpreted build.

What a compiled class cannot know, its module declares; the interpreted build is the proof that the
declarations are true.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
import types
import typing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

import ferrymq.message
from ferrymq import Message
from ferrymq_codec.composite import Composite
from ferrymq_codec.declared import declare
from ferrymq_types import messaging
from ferrymq_types.messaging import AmqpValue, Data, Header, Properties, Source
from ferrymq_types.registry import DESCRIPTORS
from ferrymq_types.transport import Attach, Error, ReceiverSettleMode, Role, SenderSettleMode

CLASSES = sorted(DESCRIPTORS, key=lambda cls: cls.__name__)
every_class = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)


def source_of(cls: type) -> dict[str, Any]:
    """The module of a class, read from its source: interpreted on either build."""
    module = inspect.getmodule(cls)
    assert module is not None and module.__file__ is not None
    path = f"{module.__file__.split('.', 1)[0]}.py"
    with open(path, encoding="utf-8") as file:
        text = file.read()
    names: dict[str, Any] = {"__name__": f"{module.__name__}.source"}
    made = types.ModuleType(names["__name__"])
    sys.modules[made.__name__] = made
    try:
        exec(compile(text, path, "exec"), made.__dict__)
    finally:
        del sys.modules[made.__name__]
    return made.__dict__


@pytest.fixture(scope="module")
def sources() -> dict[str, dict[str, Any]]:
    return {cls.__module__: source_of(cls) for cls in {c.__module__: c for c in CLASSES}.values()}


def parameters(function: Any) -> list[tuple[str, Any, str, Any]]:
    """Name, kind, annotation and default of each parameter, without self."""
    return [
        (p.name, p.kind, p.annotation, repr(p.default))
        for p in inspect.signature(function).parameters.values()
        if p.name != "self"
    ]


@every_class
def test_the_declaration_is_that_of_the_source(
    cls: type, sources: dict[str, dict[str, Any]]
) -> None:
    written = sources[cls.__module__][cls.__name__]
    declared = [
        (p.name, p.kind, cls.__annotations__[p.name], repr(p.default))
        for p in inspect.signature(cls).parameters.values()
    ]
    assert declared == parameters(written.__init__)


def test_the_declaration_of_messages_is_that_of_the_source() -> None:
    written = source_of(Message)["Message"]
    declared = [
        (p.name, p.kind, Message.__annotations__[p.name], repr(p.default))
        for p in inspect.signature(Message).parameters.values()
    ]
    assert declared == parameters(written.__init__)


@every_class
def test_fields_and_hints(cls: type) -> None:
    hints = typing.get_type_hints(cls)
    fields = dataclasses.fields(cls)
    signature = inspect.signature(cls)
    assert list(hints) == [field.name for field in fields] == list(signature.parameters)
    for field in fields:
        parameter = signature.parameters[field.name]
        assert parameter.annotation == hints[field.name]
        assert field.type == cls.__annotations__[field.name]
        missing = parameter.default is inspect.Parameter.empty
        assert (field.default is dataclasses.MISSING) == missing
        assert missing or field.default is parameter.default
        assert field.kw_only == (parameter.kind is inspect.Parameter.KEYWORD_ONLY)


def test_hints_are_types() -> None:
    assert typing.get_type_hints(Header)["ttl"] == int | None
    assert typing.get_type_hints(Attach)["role"] is Role
    assert typing.get_type_hints(Attach)["properties"] == dict[str, object] | None
    assert typing.get_type_hints(Source)["outcomes"] == list[str] | None
    assert typing.get_type_hints(AmqpValue)["value"] is object
    assert typing.get_type_hints(Message)["message_id"] == ferrymq.message.MessageId | None


def test_defaults_of_fields() -> None:
    defaults = {field.name: field.default for field in dataclasses.fields(Attach)}
    assert defaults["snd_settle_mode"] is SenderSettleMode.MIXED
    assert defaults["rcv_settle_mode"] is ReceiverSettleMode.FIRST
    assert defaults["incomplete_unsettled"] is False
    assert defaults["name"] is dataclasses.MISSING


def test_a_signature_reads_like_the_source() -> None:
    assert str(inspect.signature(Header)) == (
        "(*, durable: bool = False, priority: int = 4, ttl: int | None = None, "
        "first_acquirer: bool = False, delivery_count: int = 0)"
    )
    assert str(inspect.signature(Data)) == "(value: bytes)"
    assert str(inspect.signature(messaging.Accepted)) == "()"


def test_values_can_be_replaced_copied_and_pickled() -> None:
    header = Header(priority=7)
    assert dataclasses.replace(header, ttl=5) == Header(priority=7, ttl=5)
    assert dataclasses.asdict(header)["priority"] == 7
    assert copy.deepcopy(header) == header
    assert pickle.loads(pickle.dumps(header)) == header


def test_a_subclass_with_a_constructor_of_its_own_has_its_own_signature() -> None:
    class Own(Composite):
        def __init__(self, size: int) -> None:
            self.size = size

    assert list(inspect.signature(Own).parameters) == ["size"]
    declare(Own, {"size": "int"}, {})
    assert str(inspect.signature(Own)) == "(*, size: int)"

    class Wider(Own):
        def __init__(self, size: int, width: int) -> None:
            super().__init__(size)
            self.width = width

    assert list(inspect.signature(Wider).parameters) == ["size", "width"]


@every_class
def test_pydantic_makes_an_adapter_and_a_schema(cls: type) -> None:
    adapter = TypeAdapter(cls)
    assert set(adapter.json_schema().get("properties", {})) <= set(typing.get_type_hints(cls))


def test_pydantic_checks_values() -> None:
    adapter = TypeAdapter(Attach)
    attach = adapter.validate_python(
        {"name": "link", "handle": 0, "role": True, "source": {"address": "orders"}}
    )
    assert attach == Attach(
        name="link", handle=0, role=Role.RECEIVER, source=Source(address="orders")
    )
    assert adapter.validate_python(attach) is attach
    assert adapter.validate_json(adapter.dump_json(attach)) == attach
    with pytest.raises(ValidationError) as caught:
        adapter.validate_python({"handle": "x", "role": True, "colour": 1})
    places = {error["loc"] for error in caught.value.errors()}
    assert places == {("name",), ("handle",), ("colour",)}


def test_pydantic_checks_fields_that_are_unions() -> None:
    adapter = TypeAdapter(Properties)
    for identity in ("text", 5, b"raw"):
        assert adapter.validate_python({"message_id": identity}).message_id == identity


def test_pydantic_takes_messages() -> None:
    adapter = TypeAdapter(Message)
    message = adapter.validate_python({"body": "x", "priority": 7, "message_id": "a"})
    assert message == Message("x", priority=7, message_id="a")
    assert adapter.validate_python(message) is message
    assert adapter.dump_python(message) == {"body": "x", "priority": 7, "message_id": "a"}
    assert adapter.validate_json(adapter.dump_json(message)) == message
    with pytest.raises(ValidationError, match="priority"):
        adapter.validate_python({"body": "x", "priority": "high"})


def test_pydantic_takes_durations_and_moments_of_messages() -> None:
    adapter = TypeAdapter(Message)
    moment = datetime(2026, 5, 1, tzinfo=UTC)
    message = Message(ttl=1.5, creation_time=moment)
    for ttl, creation_time in ((1.5, moment), (timedelta(seconds=1.5), message.creation_time)):
        given_ = {"ttl": ttl, "creation_time": creation_time}
        assert adapter.validate_python(given_) == message
    assert adapter.validate_json(adapter.dump_json(message)) == message
    with pytest.raises(ValidationError, match="ttl"):
        adapter.validate_python({"ttl": "soon"})


def test_a_field_of_a_pydantic_model_may_be_a_value() -> None:
    class Job(BaseModel):
        header: Header
        failure: Error | None = None
        message: Message

    job = Job.model_validate({"header": {"priority": 7}, "message": {"body": "x"}})
    assert job == Job(header=Header(priority=7), message=Message("x"))
    assert job.model_dump()["message"] == {"body": "x"}
    assert Job.model_validate_json(job.model_dump_json()) == job
    header = Job.model_json_schema()["properties"]["header"]["properties"]
    assert header["priority"] == {"default": 4, "title": "Priority", "type": "integer"}
    with pytest.raises(ValidationError, match=r"header\.priority"):
        Job.model_validate({"header": {"priority": "high"}, "message": {}})


@settings(max_examples=10)
@given(st.data())
def test_hypothesis_builds_values(data: st.DataObject) -> None:
    for cls in (Header, Error):
        assert isinstance(data.draw(st.from_type(cls)), cls)
    header = data.draw(st.builds(Header, priority=st.integers(0, 9)))
    assert 0 <= header.priority <= 9
    message = data.draw(st.builds(Message, st.binary(), subject=st.text(max_size=3)))
    assert isinstance(message, Message)
