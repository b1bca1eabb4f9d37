"""What a trace never shows."""

from __future__ import annotations

import logging

import pytest

from ferrymq.aio.trace import FrameTrace
from ferrymq_codec.scalars import Described, Symbol
from ferrymq_types.messaging import (
    AmqpValue,
    ApplicationProperties,
    Data,
    Properties,
    Source,
    Target,
)
from ferrymq_types.security import (
    SaslChallenge,
    SaslCode,
    SaslInit,
    SaslOutcome,
    SaslResponse,
)
from ferrymq_types.transport import Attach, Open, Role, Transfer
from tests.broker.harness import encode
from tests.support.script import on
from tests.trace.streams import stream, told

SECRET = "swordfish"
JWT = f"eyJhbGciOiJIUzI1NiJ9.{SECRET}.{SECRET}"
SAS = f"SharedAccessSignature sr=x&sig={SECRET}&se=1&skn=k"

PUT_TOKEN = encode(
    Properties(message_id="1"),
    ApplicationProperties(value={"operation": "put-token", "type": "jwt", "name": "queue"}),
    AmqpValue(value=SECRET),
)


def sent(payload: bytes, handle: int = 0) -> bytes:
    return stream(on(1, Transfer(handle=handle, delivery_id=0, delivery_tag=b"t"), payload))


def attached(address: str) -> bytes:
    return stream(
        on(
            1,
            Attach(
                name="in",
                handle=0,
                role=Role.SENDER,
                source=Source(),
                target=Target(address=address),
                initial_delivery_count=0,
            ),
        )
    )


STREAMS = {
    "plain": stream(SaslInit(mechanism="PLAIN", initial_response=b"\0ann\0swordfish")),
    "response": stream(SaslResponse(response=SECRET.encode())),
    "challenge": stream(SaslChallenge(challenge=SECRET.encode())),
    "outcome": stream(SaslOutcome(code=SaslCode.OK, additional_data=SECRET.encode())),
    "put-token": sent(PUT_TOKEN),
    "body to $cbs": attached("$cbs") + sent(encode(AmqpValue(value=SECRET))),
    "data to $cbs": attached("$cbs") + sent(encode(Data(value=SECRET.encode()))),
    "application property": sent(encode(ApplicationProperties(value={"security_token": SECRET}))),
    "open property": stream(Open(container_id="c", properties={"x-opt-password": SECRET})),
    "nested": stream(Open(container_id="c", properties={"a": {"b": [{"accessKey": SECRET}]}})),
    "described": stream(
        Open(container_id="c", properties={"a": Described(Symbol("x:y"), {"token": SECRET})})
    ),
    "filter": stream(
        on(
            1,
            Attach(
                name="out",
                handle=0,
                role=Role.RECEIVER,
                source=Source(filter={"token": Described(Symbol("token"), SECRET)}),
                target=Target(),
            ),
        )
    ),
    "jwt anywhere": sent(encode(AmqpValue(value={"x": [JWT]}))),
    "sas anywhere": sent(encode(AmqpValue(value=SAS))),
    "sas as bytes": sent(encode(Data(value=SAS.encode()))),
    "address": attached(f"queue?{SAS}"),
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("as_json", [False, True])
def test_no_secret_is_shown(name: str, full: bool, as_json: bool) -> None:
    lines = told(STREAMS[name], full=full, as_json=as_json)
    assert lines
    assert SECRET not in "".join(lines)
    assert SECRET.encode().hex() not in "".join(lines)


def test_how_long_it_was_is_told() -> None:
    assert "initial-response=<redacted, 14 bytes>" in told(STREAMS["plain"])[0]


def test_other_links_are_shown_and_a_handle_may_be_used_again() -> None:
    data = attached("$cbs") + attached("queue") + sent(encode(AmqpValue(value="hello")))
    assert "amqp-value(value='hello')" in told(data, full=True)[-1]


def test_a_frame_that_cannot_be_read_tells_nothing_of_its_content() -> None:
    whole = STREAMS["plain"]
    for end in range(8, len(whole)):
        cut = len(whole[:end]).to_bytes(4, "big") + whole[4:end]
        assert SECRET not in "".join(told(cut))


def test_the_log_of_a_client_has_none_either(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "ferrymq.frames")
    trace = FrameTrace.if_enabled("amqp://host")
    assert trace is not None
    for data in STREAMS.values():
        trace.sent(data)
        trace.received(data)
    assert "sasl-init(mechanism='PLAIN'" in caplog.text
    assert SECRET not in caplog.text
