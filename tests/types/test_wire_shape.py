"""The exact bytes of generated types: what is written, what is trimmed, what null stands for."""

from __future__ import annotations

from uuid import UUID

import pytest

from ferrymq_codec import DecodeError, EncodeError
from ferrymq_codec.composite import Composite
from ferrymq_codec.reader import Reader
from ferrymq_types import registry
from ferrymq_types.filters import NoLocalFilter, SelectorFilter
from ferrymq_types.messaging import (
    Accepted,
    AmqpSequence,
    AmqpValue,
    ApplicationProperties,
    Data,
    DeleteOnClose,
    Header,
    MessageAnnotations,
    Modified,
    Properties,
    Received,
    Rejected,
    Released,
    Source,
    StdDistMode,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from ferrymq_types.security import SaslCode, SaslInit, SaslMechanisms, SaslOutcome
from ferrymq_types.transactions import Declare, Discharge, TransactionalState
from ferrymq_types.transport import (
    AmqpErrorCondition,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    ReceiverSettleMode,
    Role,
    SenderSettleMode,
    Transfer,
)
from tests.types.specification import encode


def listed(*fields: str) -> str:
    """A list8 of fields given in hexadecimal, which may hold spaces."""
    content = "".join(fields).replace(" ", "")
    return f"c0{len(content) // 2 + 1:02x}{len(fields):02x}{content}"


def described(code: int, *fields: str) -> str:
    """A list8 behind a small descriptor."""
    return f"0053{code:02x}" + listed(*fields)


def nulls(count: int) -> list[str]:
    return ["40"] * count


ERROR = described(0x1D, "a30178")
TRUE, FALSE, NULL, ZERO = "41", "42", "40", "43"

VECTORS: list[tuple[Composite, str]] = [
    # Performatives write every field (AMQP 1.0 §2.7): old clients index them by position.
    (Open(container_id="c"),
     described(0x10, "a10163", NULL, "70ffffffff", "60ffff", *nulls(6))),
    (Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=256),
     described(0x11, NULL, ZERO, "5201", "7000000100", "70ffffffff", *nulls(3))),
    (Attach(name="n", handle=0, role=Role.SENDER),
     described(0x12, "a1016e", ZERO, FALSE, "5002", "5000", *nulls(3), FALSE, *nulls(5))),
    (Attach(name="n", handle=0, role=Role.RECEIVER, snd_settle_mode=SenderSettleMode.SETTLED,
            rcv_settle_mode=ReceiverSettleMode.SECOND, source=Source(), target=Target()),
     described(0x12, "a1016e", ZERO, TRUE, "5001", "5001", "00532845", "00532945", NULL, FALSE,
               *nulls(5))),
    (Flow(incoming_window=1, next_outgoing_id=2, outgoing_window=3),
     described(0x13, NULL, "5201", "5202", "5203", *nulls(4), FALSE, FALSE, NULL)),
    (Transfer(handle=1, delivery_id=2, delivery_tag=b"t"),
     described(0x14, "5201", "5202", "a00174", NULL, NULL, FALSE, NULL, NULL, *[FALSE] * 3)),
    (Transfer(handle=1, state=Accepted(), rcv_settle_mode=ReceiverSettleMode.FIRST, more=True),
     described(0x14, "5201", *nulls(4), TRUE, "5000", "00532445", *[FALSE] * 3)),
    (Disposition(role=Role.RECEIVER, first=0, state=Rejected(error=Error(condition="x"))),
     described(0x15, TRUE, ZERO, NULL, FALSE, described(0x25, ERROR), FALSE)),
    (Detach(handle=0), described(0x16, ZERO, FALSE, NULL)),
    (End(), described(0x17, NULL)),
    (Close(), "005318 c002 01 40"),
    (Close(error=Error(condition=AmqpErrorCondition.NOT_FOUND, description="d")),
     described(0x18, described(0x1D, "a30e" + b"amqp:not-found".hex(), "a10164"))),
    # So do SASL frames.
    (SaslMechanisms(sasl_server_mechanisms=["PLAIN"]),
     described(0x40, "e00801a3 05504c41494e")),
    (SaslInit(mechanism="X"), described(0x41, "a30158", NULL, NULL)),
    (SaslOutcome(code=SaslCode.SYS_TEMP), described(0x44, "5004", NULL)),
    # Everything else leaves out what ends in nulls, and defaults count as null.
    (Header(), "005370 45"),
    (Header(durable=True), "005370 c002 01 41"),
    (Header(priority=4, delivery_count=0), "005370 45"),
    (Header(priority=5), described(0x70, NULL, "5005")),
    (Header(delivery_count=1), described(0x70, *nulls(4), "5201")),
    (Properties(), "005373 45"),
    (Properties(to="q"), described(0x73, NULL, NULL, "a10171")),
    (Properties(message_id=5), described(0x73, "5305")),
    (Properties(message_id=b"\1"), described(0x73, "a00101")),
    (Properties(message_id=UUID(int=1)), described(0x73, "98" + "00" * 15 + "01")),
    (Properties(message_id="m" * 300), "005373 d000000135 00000001 b10000012c" + "6d" * 300),
    (Data(b"x"), "005375 a00178"),
    (AmqpValue(None), "005377 40"),
    (AmqpValue([1]), "005377" + listed("5501")),
    (AmqpSequence([]), "005376 45"),
    (ApplicationProperties({"a": True}), "005374 c105 02 a10161 41"),
    (MessageAnnotations({"a": 1, 7: None}), "005372 c109 04 a30161 5501 5307 40"),
    (Received(section_number=1, section_offset=0), described(0x23, "5201", "44")),
    (Accepted(), "005324 45"),
    (Released(), "005326 45"),
    (Modified(), "005327 45"),
    (Source(durable=TerminusDurability.UNSETTLED_STATE), described(0x28, NULL, "5202")),
    (Source(expiry_policy=TerminusExpiryPolicy.NEVER),
     described(0x28, NULL, NULL, "a3056e65766572")),
    (Source(address="q", distribution_mode=StdDistMode.COPY, outcomes=["a", "b"]),
     described(0x28, "a10171", *nulls(5), "a304636f7079", *nulls(2), "e00602a3 01610162")),
    (Target(address="q", dynamic=True, dynamic_node_properties={"x": DeleteOnClose()}),
     described(0x29, "a10171", *nulls(3), TRUE, "c108 02 a30178 00532b45")),
    (Declare(), "005331 45"),
    (Discharge(txn_id=b"t", fail=True), described(0x32, "a00174", TRUE)),
    (TransactionalState(txn_id=b"t", outcome=Accepted()), described(0x34, "a00174", "00532445")),
    (SelectorFilter("x"), "00 80 0000468c00000004 a10178"),
    (NoLocalFilter(), "00 80 0000468c00000003 45"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), VECTORS, ids=lambda v: str(v)[:40])
def test_bytes(value: Composite, text: str) -> None:
    assert encode(value).hex() == text.replace(" ", "")


# Values in other encodings than the one we write.
ACCEPTED: list[tuple[str, Composite]] = [
    (described(0x70), Header()),
    ("005370 d000000004 00000000", Header()),
    ("00 80 0000000000000070 45", Header()),
    (described(0x70, *nulls(5)), Header()),
    (described(0x70, "5601", "5004", NULL, FALSE, ZERO), Header(durable=True)),
    ("005370 d00000000d 00000005 40 40 40 40 7000000001", Header(delivery_count=1)),
    (described(0x14, "5201"), Transfer(handle=1)),
    (described(0x14, "7000000001"), Transfer(handle=1)),
    (described(0x28, NULL, ZERO, NULL), Source()),
    (described(0x28, *nulls(9), "a30161"), Source(outcomes=["a"])),
    (described(0x28, *nulls(9), "e00401a3 0161"), Source(outcomes=["a"])),
    (described(0x28, *nulls(9), "f00000000a 00000001 b3 00000001 61"), Source(outcomes=["a"])),
    # Nulls behind the last field say nothing: they may be there or not (§1.4).
    (described(0x70, *nulls(6)), Header()),
    (described(0x73, NULL, NULL, "a10171", *nulls(11)), Properties(to="q")),
    (described(0x14, "5201", *nulls(11)), Transfer(handle=1)),
    (described(0x24, NULL), Accepted()),
    # An empty array is as good as null (§1.4).
    (described(0x28, *nulls(9), "e00200a3"), Source()),
    (described(0x73, "800000000000000005"), Properties(message_id=5)),
    (described(0x40, "a308" + b"CRAM-MD5".hex()),
     SaslMechanisms(sasl_server_mechanisms=["CRAM-MD5"])),
]  # fmt: skip


REFUSED: list[tuple[str, str, str]] = [
    ("005314 45", "transfer.handle", "mandatory field is missing"),
    (described(0x14, NULL), "transfer.handle", "mandatory field is missing"),
    (described(0x15, TRUE), "disposition.first", "mandatory field is missing"),
    (described(0x40, NULL), "sasl-mechanisms.sasl-server-mechanisms", "mandatory field is missing"),
    (described(0x70, *nulls(5), FALSE), "header", "has 6 fields, not at most 5"),
    (described(0x24, NULL, FALSE), "accepted", "has 2 fields, not at most 0"),
    ("005370 c003 01 40 40", "header", ""),
    (described(0x70, "5201"), "header.durable", "boolean"),
    (described(0x12, "a1016e", ZERO, FALSE, "5003"),
     "attach.snd-settle-mode", "3 is not a sender-settle-mode"),
    (described(0x28, NULL, "5203"), "source.durable", "3 is not a terminus-durability"),
    (described(0x28, NULL, NULL, "a30178"),
     "source.expiry-policy", "x is not a terminus-expiry-policy"),
    (described(0x44, "5005"), "sasl-outcome.code", "5 is not a sasl-code"),
    (described(0x14, ZERO, *nulls(6), "00532845"), "transfer.state", "not a delivery-state"),
    (described(0x34, "a00174", described(0x23, "5201", "44")),
     "transactional-state.outcome", "not an outcome"),
    (described(0x16, ZERO, FALSE, "00532445"), "detach.error", "not an error"),
    (described(0x73, "5405"),
     "properties.message-id", "constructor 0x54 is not that of a message-id"),
    (described(0x73, NULL, NULL, TRUE), "properties.to", "string"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), ACCEPTED, ids=lambda v: str(v)[:40])
def test_other_legal_encodings(text: str, value: Composite) -> None:
    data = bytes.fromhex(text)
    r = Reader(data, 0, len(data))
    assert registry.decode_any(r, "value") == value
    assert r.remaining() == 0


@pytest.mark.parametrize(("text", "field", "reason"), REFUSED, ids=lambda v: str(v)[:40])
def test_refused(text: str, field: str, reason: str) -> None:
    data = bytes.fromhex(text)
    with pytest.raises(DecodeError) as caught:
        registry.decode_any(Reader(data, 0, len(data)), "value")
    assert caught.value.field == field
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (Transfer(handle=2**32), "transfer.handle"),
        (Open(container_id="c", channel_max=-1), "open.channel-max"),
        (SaslMechanisms(sasl_server_mechanisms=[]), "sasl-mechanisms.sasl-server-mechanisms"),
        (Properties(content_type="tëxt"), "properties.content-type"),
        (Properties(message_id=2**64), "properties.message-id"),
        (Properties(message_id=-1), "properties.message-id"),
        (Error(condition="ü"), "error.condition"),
        (Properties(absolute_expiry_time=2**63), "properties.absolute-expiry-time"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_value_that_a_field_cannot_hold(value: Composite, field: str) -> None:
    with pytest.raises(EncodeError) as caught:
        encode(value)
    assert caught.value.field == field
