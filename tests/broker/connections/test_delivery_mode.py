"""How often a message may arrive, as conditions and wishes of a link."""

from __future__ import annotations

import pytest

from ferrymq_types.messaging import Accepted, Released
from ferrymq_types.transport import ReceiverSettleMode, SenderSettleMode
from tests.broker.harness import Endpoint, Network
from tests.broker.test_termini import refused

AT_MOST, AT_LEAST, EXACTLY = "at-most-once", "at-least-once", "exactly-once"


def answered(endpoint: Endpoint) -> dict[str, object]:
    attach = endpoint._link.remote_attach
    assert attach is not None
    return attach.properties or {}


@pytest.mark.spec("broker-2.3.11.2")
def test_at_most_once_is_sent_settled(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(b"a")
    receiver = client.receiver("q", credit=1, properties={"delivery-mode": AT_MOST})
    assert answered(receiver) == {"delivery-mode": AT_MOST}
    assert receiver.link.snd_settle_mode is SenderSettleMode.SETTLED
    (delivery,) = receiver.take()
    assert delivery.remote_settled
    client.lose()
    assert net.queue("q").message_count() == 0


@pytest.mark.spec("broker-2.3.11.2")
def test_at_least_once_is_never_sent_settled(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(b"a")
    receiver = client.receiver("q", credit=1, properties={"delivery-mode": AT_LEAST})
    assert answered(receiver) == {"delivery-mode": AT_LEAST}
    assert receiver.link.snd_settle_mode is SenderSettleMode.UNSETTLED
    (delivery,) = receiver.take()
    assert not delivery.remote_settled
    client.lose()
    assert net.connect().receiver("q", credit=1).bodies() == [b"a"]


@pytest.mark.spec("broker-2.3.6")
@pytest.mark.parametrize(
    ("mode", "snd", "default"),
    [
        (EXACTLY, SenderSettleMode.MIXED, None),
        (AT_MOST, SenderSettleMode.UNSETTLED, None),
        (AT_MOST, SenderSettleMode.MIXED, Released()),
        (AT_LEAST, SenderSettleMode.SETTLED, None),
    ],
)
def test_what_cannot_be_kept_is_refused_to_consumers(
    net: Network, mode: str, snd: SenderSettleMode, default: Released | None
) -> None:
    client = net.connect()
    required = client.receiver(
        "q", snd=snd, default_outcome=default, properties={"delivery-mode": mode}
    )
    assert refused(required, "amqp:not-implemented")
    assert mode in str(required.error and required.error.description)
    wished = client.receiver(
        "q", snd=snd, default_outcome=default, properties={"opt-delivery-mode": mode}
    )
    assert wished.link.usable and answered(wished) == {}
    assert wished.link.snd_settle_mode is snd


@pytest.mark.spec("broker-2.3.6")
@pytest.mark.parametrize(
    ("mode", "snd"),
    [
        (AT_MOST, SenderSettleMode.UNSETTLED),
        (AT_LEAST, SenderSettleMode.SETTLED),
        (EXACTLY, SenderSettleMode.SETTLED),
    ],
)
def test_what_cannot_be_kept_is_refused_to_producers(
    net: Network, mode: str, snd: SenderSettleMode
) -> None:
    client = net.connect()
    required = client.sender("q", snd=snd, properties={"delivery-mode": mode})
    assert refused(required, "amqp:not-implemented")
    wished = client.sender("q", snd=snd, properties={"opt-delivery-mode": mode})
    assert wished.link.usable and answered(wished) == {}


@pytest.mark.spec("broker-2.3.8.1")
def test_at_least_once_asks_no_producer_to_confirm(net: Network) -> None:
    sender = net.connect().sender(
        "q", rcv=ReceiverSettleMode.SECOND, properties={"delivery-mode": AT_LEAST}
    )
    assert answered(sender) == {"delivery-mode": AT_LEAST}
    attach = sender.link.remote_attach
    assert attach is not None and attach.rcv_settle_mode is ReceiverSettleMode.FIRST
    (delivery,) = sender.send(b"a")
    assert delivery.remote_settled and isinstance(delivery.remote_state, Accepted)


@pytest.mark.spec("broker-2.3.6")
def test_a_wish_beyond_the_condition_is_kept_where_it_can_be(net: Network) -> None:
    client = net.connect()
    both: dict[str, object] = {"delivery-mode": AT_LEAST, "opt-delivery-mode": EXACTLY}
    assert answered(client.sender("q", properties=both)) == both
    assert answered(client.receiver("q", properties=both)) == {"delivery-mode": AT_LEAST}
    # A wish for less than the condition is no wish that could be kept.
    less: dict[str, object] = {"delivery-mode": EXACTLY, "opt-delivery-mode": AT_MOST}
    assert answered(client.sender("q", properties=less)) == {"delivery-mode": EXACTLY}


@pytest.mark.parametrize("value", ["twice", 1, None, True])
def test_modes_that_do_not_exist(net: Network, value: object) -> None:
    client = net.connect()
    wished = client.sender("q", properties={"opt-delivery-mode": value})
    assert wished.link.usable and answered(wished) == {}
    required = client.sender("q", properties={"delivery-mode": value})
    if value is None:
        assert required.link.usable and answered(required) == {}
    else:
        assert refused(required, "amqp:invalid-field")
