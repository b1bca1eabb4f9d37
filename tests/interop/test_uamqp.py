"""uamqp, the client in C under Azure's older packages for Python. It connects by TLS only.

Its senders attach with receiver-settle-mode second, and wait without end for an outcome that is
settled.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.tls.pki import Pki
from tests.interop.broker_process import BrokerProcess

uamqp = pytest.importorskip("uamqp")

pytestmark = pytest.mark.interop

# Milliseconds. Generous, for busy machines; nothing waits this long if all is well.
PATIENCE = 30_000


class Client:
    """Connects uamqp to a broker and one address."""

    def __init__(self, broker: BrokerProcess, pki: Pki, address: str) -> None:
        self._broker = broker
        self._pki = pki
        self.address = address
        # uamqp puts this whole text into the address of a target.
        self._url = f"amqps://localhost:{broker.port}/{address}"

    def _login(self) -> Any:
        trusted = str(self._pki.path("ca"))
        return uamqp.authentication.SASLPlain(
            "localhost", "bob", "open sesame", port=self._broker.port, verify=trusted
        )

    def send(self, *messages: Any) -> list[Any]:
        """Send messages, and return what became of each."""
        client = uamqp.SendClient(self._url, auth=self._login(), msg_timeout=PATIENCE)
        try:
            client.queue_message(*messages)
            found: list[Any] = client.send_all_messages(close_on_done=False)
            return found
        finally:
            client.close()

    def receiver(self) -> Any:
        return uamqp.ReceiveClient(
            self._url, auth=self._login(), timeout=PATIENCE, auto_complete=False, prefetch=10
        )


@pytest.fixture
def client(secured: tuple[BrokerProcess, Pki], address: str) -> Client:
    broker, pki = secured
    return Client(broker, pki, address)


def test_a_sender_that_asks_for_mode_second_gets_its_outcomes(client: Client) -> None:
    sent = client.send(*(uamqp.Message(f"{number}") for number in range(3)))
    assert [state.name for state in sent] == ["SendComplete"] * 3
    receiver = client.receiver()
    try:
        got = receiver.receive_message_batch(max_batch_size=3, timeout=PATIENCE)
        assert [str(message) for message in got] == ["0", "1", "2"]
        assert all(message.accept() for message in got)
    finally:
        receiver.close()


@pytest.mark.parametrize("identifier", [7, "seven", b"\x07"])
def test_the_type_of_a_message_id_stays(client: Client, identifier: object) -> None:
    properties = uamqp.message.MessageProperties(message_id=identifier, encoding="utf-8")
    client.send(uamqp.Message("one", properties=properties))
    receiver = client.receiver()
    try:
        (message,) = receiver.receive_message_batch(max_batch_size=1, timeout=PATIENCE)
        found = message.properties.message_id
        assert found == (identifier.encode() if isinstance(identifier, str) else identifier)
        message.accept()
    finally:
        receiver.close()


def test_messages_come_back_or_not_by_their_outcomes(client: Client) -> None:
    client.send(*(uamqp.Message(text) for text in ("accept", "reject", "release", "modify")))
    receiver = client.receiver()
    try:
        got = receiver.receive_message_batch(max_batch_size=4, timeout=PATIENCE)
        outcomes = {str(message): message for message in got}
        assert outcomes["accept"].accept()
        assert outcomes["reject"].reject(condition=b"shop:closed", description=b"until nine")
        assert outcomes["release"].release()
        assert outcomes["modify"].modify(True, False)
    finally:
        receiver.close()
    receiver = client.receiver()
    try:
        got = receiver.receive_message_batch(max_batch_size=2, timeout=PATIENCE)
        counts = {str(message): getattr(message.header, "delivery_count", 0) for message in got}
        assert counts == {"release": 0, "modify": 1}
        assert all(message.accept() for message in got)
    finally:
        receiver.close()
