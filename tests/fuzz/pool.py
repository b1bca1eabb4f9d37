"""Frames and messages that are good, for changes to begin with and to put in."""

from __future__ import annotations

from ferrymq_codec.scalars import Described, Symbol, UInt, ULong
from ferrymq_types.messaging import (
    Accepted,
    AmqpSequence,
    AmqpValue,
    ApplicationProperties,
    Data,
    DeleteOnClose,
    DeliveryAnnotations,
    Footer,
    Header,
    MessageAnnotations,
    Modified,
    Properties,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from ferrymq_types.security import (
    SaslChallenge,
    SaslCode,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from ferrymq_types.transactions import (
    Coordinator,
    Declare,
    Declared,
    Discharge,
    TransactionalState,
)
from ferrymq_types.transport import (
    Attach,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Open,
    ReceiverSettleMode,
    Role,
    SenderSettleMode,
)
from tests.fuzz.mutation.frames import HEADERS
from tests.support.scenes import MAX32, peer_attach, peer_begin, peer_flow, transfer
from tests.support.script import encode, encoded, on


def message(*sections: object) -> bytes:
    """The bytes of these sections."""
    return b"".join([encode(section) for section in sections])  # type: ignore[arg-type]


MESSAGES: tuple[bytes, ...] = (
    message(Data(value=b"body")),
    message(Header(durable=True, priority=9, ttl=5000), AmqpValue(value="body")),
    message(
        Header(first_acquirer=True, delivery_count=3),
        DeliveryAnnotations(value={"x-opt-hop": 1}),
        MessageAnnotations(
            value={"x-opt-scheduled-enqueue-time": 1, "x-opt-partition-key": "a", "x-opt-z": [1]}
        ),
        Properties(
            message_id="one",
            user_id=b"ann",
            to="topic",
            subject="a.b",
            reply_to="queue",
            correlation_id=5,
            content_type="text/plain",
            absolute_expiry_time=2**40,
            creation_time=0,
            group_id="group",
            group_sequence=MAX32,
            reply_to_group_id="other",
        ),
        ApplicationProperties(value={"colour": "red", "weight": 5, "none": None, "x": 1.5}),
        Data(value=b"one"),
        Data(value=b"two"),
        Footer(value={"x-opt-sum": b"\1\2"}),
    ),
    message(AmqpSequence(value=[1, "two", None]), AmqpSequence(value=[])),
    message(AmqpValue(value={"map": [Described(ULong(5), Symbol("s"))], "n": UInt(7)})),
)

SOURCES: tuple[Source, ...] = (
    Source(address="queue"),
    Source(address="topic", distribution_mode="copy"),
    Source(dynamic=True, dynamic_node_properties={"lifetime-policy": DeleteOnClose()}),
    Source(
        address="topic",
        durable=TerminusDurability.UNSETTLED_STATE,
        expiry_policy=TerminusExpiryPolicy.NEVER,
        timeout=5,
    ),
    Source(
        address="queue",
        filter={"s": Described(Symbol("apache.org:selector-filter:string"), "colour = 'red'")},
        default_outcome=Modified(delivery_failed=True),
        outcomes=["amqp:accepted:list", "amqp:released:list"],
        capabilities=["queue"],
    ),
    Source(address="$management"),
)

_STATES = (
    Accepted(),
    Released(),
    Rejected(error=Error(condition="amqp:not-allowed", description="no", info={"a": 1})),
    Modified(delivery_failed=True, undeliverable_here=True, message_annotations={"x-opt-a": 1}),
    Received(section_number=1, section_offset=5),
    Declared(txn_id=b"\0"),
    TransactionalState(txn_id=b"\0", outcome=Accepted()),
)

AMQP: tuple[bytes, ...] = (
    *(encoded(item) for item in (
        Open(container_id="peer"),
        Open(
            container_id="other",
            hostname="host",
            max_frame_size=512,
            channel_max=3,
            idle_time_out=1000,
            desired_capabilities=["ANONYMOUS-RELAY"],
            properties={"product": "x"},
        ),
        on(1, peer_begin()),
        on(0, peer_begin(0)),
        on(7, peer_begin(None, handle_max=1, next_outgoing_id=MAX32)),
        *[on(1, peer_attach("in", 0, Role.SENDER, target=Target(address=a))) for a in
          ("queue", "topic", "stream", "exchange", "$management", "$cbs", None)],
        *[on(1, peer_attach(f"out-{i}", 1, Role.RECEIVER, source=source))
          for i, source in enumerate(SOURCES)],
        on(1, peer_attach("resumed", 2, Role.RECEIVER, unsettled={b"a": Accepted(), b"b": None})),
        on(1, peer_attach(
            "second", 2, Role.SENDER, incomplete_unsettled=True, max_message_size=100,
            snd_settle_mode=SenderSettleMode.UNSETTLED,
            rcv_settle_mode=ReceiverSettleMode.SECOND,
            unsettled={b"a": Received(section_number=0, section_offset=4)},
        )),
        on(1, Attach(name="txn", handle=3, role=Role.SENDER, source=Source(),
                     target=Coordinator(capabilities=["amqp:local-transactions"]),
                     initial_delivery_count=0)),
        on(1, peer_flow()),
        on(1, peer_flow(echo=True)),
        on(1, peer_flow(handle=1, delivery_count=0, link_credit=5)),
        on(1, peer_flow(handle=1, delivery_count=0, link_credit=5, drain=True)),
        on(1, peer_flow(handle=1, link_credit=MAX32, delivery_count=MAX32)),
        on(1, peer_flow(handle=1, delivery_count=0, link_credit=1,
                        properties={"txn-id": b"\0"})),
        *[on(1, transfer(0, i, b"%d" % i), payload) for i, payload in enumerate(MESSAGES)],
        on(1, transfer(0, 0, b"a", settled=True), MESSAGES[0]),
        on(1, transfer(0, 1, b"b", more=True), b"half"),
        on(1, transfer(0, None, None), b"half"),
        on(1, transfer(0, None, None, aborted=True)),
        on(1, transfer(0, 2, b"b", resume=True, state=Accepted()), b""),
        on(1, transfer(0, 2, b"t", state=TransactionalState(txn_id=b"\0")), MESSAGES[0]),
        on(1, transfer(3, 0, b"t"), message(AmqpValue(value=Declare()))),
        on(1, transfer(3, 1, b"u"), message(AmqpValue(value=Discharge(txn_id=b"\0", fail=True)))),
        *[on(1, Disposition(role=Role.RECEIVER, first=0, last=3, settled=True, state=state))
          for state in _STATES],
        on(1, Disposition(role=Role.SENDER, first=0, last=MAX32, settled=True)),
        on(1, Detach(handle=0)),
        on(1, Detach(handle=1, closed=True, error=Error(condition="amqp:link:detach-forced"))),
        on(1, End()),
        on(1, End(error=Error(condition="amqp:session:window-violation"))),
        Close(),
        Close(error=Error(condition="amqp:connection:forced", description="enough")),
    )),
    HEADERS[0],
    b"\0\0\0\x08\2\0\0\0",
)  # fmt: skip

PROOF = b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
SASL: tuple[bytes, ...] = (
    *(
        encoded(item)
        for item in (
            SaslInit(mechanism="PLAIN", initial_response=b"\0ann\0secret", hostname="host"),
            SaslInit(mechanism="PLAIN", initial_response=b"ann\0ann\0wrong"),
            SaslInit(mechanism="ANONYMOUS", initial_response=b"trace"),
            SaslInit(mechanism="EXTERNAL", initial_response=b""),
            SaslInit(mechanism="SCRAM-SHA-256", initial_response=b"n,,n=ann,r=fyko+d2lbbFgONRv9"),
            SaslInit(mechanism="SCRAM-SHA-512", initial_response=b"n,a=x,n==2C=3D,r=abc"),
            SaslInit(mechanism="SCRAM-SHA-1", initial_response=b"p=tls-unique,,n=ann,r=fyko"),
            SaslInit(
                mechanism="OAUTHBEARER",
                initial_response=b"n,a=ann,\1host=h\1port=1\1auth=Bearer a.b.c\1\1",
            ),
            SaslInit(mechanism="XOAUTH2", initial_response=b"user=ann\1auth=Bearer a.b.c\1\1"),
            SaslResponse(response=PROOF),
            SaslResponse(response=b""),
            SaslResponse(response=b"\1"),
            SaslMechanisms(sasl_server_mechanisms=["PLAIN"]),
            SaslMechanisms(sasl_server_mechanisms=["SCRAM-SHA-256", "SCRAM-SHA-1", "ANONYMOUS"]),
            SaslChallenge(challenge=b"r=fyko,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"),
            SaslChallenge(challenge=b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ="),
            SaslChallenge(challenge=b"e=other-error"),
            SaslChallenge(challenge=b""),
            SaslOutcome(code=SaslCode.OK),
            SaslOutcome(code=SaslCode.OK, additional_data=b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ="),
            SaslOutcome(code=SaslCode.AUTH),
        )
    ),
    HEADERS[2],
)
