"""A client that sends exactly once, whoever leads."""

from __future__ import annotations

import ferrymq
from ferrymq import Message, ReconnectPolicy


class LastingProducer:
    """A producer with the URLs of all members. `sent` has the bodies whose outcomes it has."""

    def __init__(self, urls: list[str]) -> None:
        self.sent: list[bytes] = []
        self.is_over = False
        self._urls = urls

    async def run(self) -> None:
        """Send one message after the other until it is over."""
        policy = ReconnectPolicy(initial=0.01, maximum=0.1)
        async with (
            ferrymq.connect(self._urls, reconnect=policy, container_id="producer") as client,
            client.sender("orders", exactly_once=True, name="orders") as sender,
        ):
            while not self.is_over:
                body = b"%d" % len(self.sent)
                await sender.send(Message(body, durable=True))
                self.sent.append(body)
