"""Performatives against Azure's pyamqp, which finds fields by their position in the list."""

from __future__ import annotations

import pytest
from azure.eventhub._pyamqp import performatives
from azure.eventhub._pyamqp._decode import decode_frame
from azure.eventhub._pyamqp._encode import encode_frame
from hypothesis import given
from hypothesis import strategies as st

from ferrymq_codec.reader import Reader
from ferrymq_types import unions
from ferrymq_types.messaging import Source, Target
from ferrymq_types.transport import (
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

pytestmark = pytest.mark.interop

UINT = st.integers(0, 2**32 - 1)


def theirs(value) -> tuple[int, list[object]]:
    code, fields = decode_frame(memoryview(encode(value)))
    return code, [bytes(f) if isinstance(f, memoryview) else f for f in fields]


@given(UINT, UINT, st.binary(max_size=32), st.booleans(), st.booleans())
def test_transfer(handle: int, delivery: int, tag: bytes, more: bool, settled: bool) -> None:
    transfer = Transfer(
        handle=handle, delivery_id=delivery, delivery_tag=tag, more=more, settled=settled
    )
    fields = [handle, delivery, tag, None, settled, more, None, None, False, False, False]
    assert theirs(transfer) == (20, [*fields, b""])
    frame = performatives.TransferFrame(
        handle=handle,
        delivery_id=delivery,
        delivery_tag=tag,
        message_format=0,
        settled=settled,
        more=more,
        payload=b"",
    )
    data = bytes(encode_frame(frame)[1] or b"")
    transfer.message_format = 0
    assert unions.decode_frame(Reader(data, 0, len(data)), "frame") == transfer


@given(UINT, UINT, UINT, st.none() | UINT, st.none() | UINT, st.booleans())
def test_flow(
    window: int, outgoing: int, size: int, handle: int | None, credit: int | None, drain: bool
) -> None:
    flow = Flow(
        incoming_window=window,
        next_outgoing_id=outgoing,
        outgoing_window=size,
        handle=handle,
        link_credit=credit,
        drain=drain,
    )
    fields = [None, window, outgoing, size, handle, None, credit, None, drain, False, None]
    assert theirs(flow) == (19, fields)


ERROR = Error(condition="amqp:not-found", description="gone")


@pytest.mark.parametrize(
    ("value", "code", "fields"),
    [
        (Open(container_id="c"), 16, [b"c", None, 2**32 - 1, 65535, *[None] * 6]),
        (
            Begin(next_outgoing_id=1, incoming_window=2, outgoing_window=3),
            17,
            [None, 1, 2, 3, 2**32 - 1, None, None, None],
        ),
        (
            Attach(
                name="l",
                handle=1,
                role=Role.RECEIVER,
                snd_settle_mode=SenderSettleMode.SETTLED,
                rcv_settle_mode=ReceiverSettleMode.SECOND,
                source=Source(address="a"),
                target=Target(address="b"),
                initial_delivery_count=0,
            ),
            18,
            [b"l", 1, True, 1, 1, [b"a"], [b"b"], None, False, 0, *[None] * 4],
        ),
        (
            Disposition(role=Role.SENDER, first=1, last=2, settled=True),
            21,
            [False, 1, 2, True, None, False],
        ),
        (Detach(handle=1, closed=True), 22, [1, True, None]),
        (Detach(handle=1, error=ERROR), 22, [1, False, [b"amqp:not-found", b"gone"]]),
        (End(), 23, [None]),
        (Close(), 24, [None]),
        (Close(error=ERROR), 24, [[b"amqp:not-found", b"gone"]]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_performative(value, code: int, fields: list[object]) -> None:
    assert theirs(value) == (code, fields)
