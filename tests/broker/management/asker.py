"""A client of a management node, on whatever links the test attaches."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from uuid import UUID

from ferrymq_types.messaging import (
    Accepted,
    AmqpValue,
    ApplicationProperties,
    Properties,
    Source,
)
from ferrymq_types.unions import Section
from tests.broker.harness import Client, Network, Receiver, Sender, decode

_ids = itertools.count(1)


@dataclass
class Answer:
    """A response, taken apart."""

    status: int
    description: str
    properties: dict[str, object]
    body: object
    about: Properties

    def map(self) -> dict[str, object]:
        assert isinstance(self.body, dict), self.body
        return self.body


def read_answer(payload: bytes) -> Answer:
    properties: dict[str, object] = {}
    body: object = None
    about = Properties()
    for section in decode(payload):
        if isinstance(section, ApplicationProperties):
            properties = section.value
        elif isinstance(section, AmqpValue):
            body = section.value
        elif isinstance(section, Properties):
            about = section
    status, description = properties["statusCode"], properties["statusDescription"]
    assert isinstance(status, int) and isinstance(description, str)
    return Answer(status, description, properties, body, about)


def request_sections(
    operation: str | None,
    type: str | None,
    name: str | None,
    body: object,
    *,
    reply_to: str | None,
    message_id: str | int | bytes | UUID | None,
    properties: dict[str, object] | None = None,
) -> list[Section]:
    asked: dict[str, object] = dict(properties or {})
    for key, value in (("operation", operation), ("type", type), ("name", name)):
        if value is not None:
            asked[key] = value
    sections: list[Section] = [
        Properties(message_id=message_id, reply_to=reply_to),
        ApplicationProperties(asked),
    ]
    if body is not None:
        sections.append(AmqpValue(body))
    return sections


class Asker:
    """Requests over one link, responses over a dynamic queue."""

    def __init__(self, net: Network, client: Client | None = None) -> None:
        self.net = net
        self.client = client or net.connect()
        self.receiver: Receiver = self.client.receiver(
            None, source=Source(dynamic=True), credit=1000
        )
        self.sender: Sender = self.client.sender("$management")
        self.reply_to = self.receiver.remote_source.address

    def ask(
        self,
        operation: str | None,
        type: str | None = None,
        name: str | None = None,
        body: object = None,
        properties: dict[str, object] | None = None,
    ) -> Answer:
        """Ask, and expect an answer with the right correlation."""
        id = f"request-{next(_ids)}"
        self.sender.send_sections(
            *request_sections(
                operation,
                type,
                name,
                body,
                reply_to=self.reply_to,
                message_id=id,
                properties=properties,
            )
        )
        (delivery,) = self.receiver.deliveries
        self.receiver.settle(Accepted())
        answer = read_answer(delivery.payload)
        assert answer.about.correlation_id == id
        return answer

    def query(self, type: str | None = None, **arguments: object) -> list[dict[str, object]]:
        """The rows of a QUERY."""
        body = dict(arguments)
        if type is not None:
            body["entityType"] = type
        answer = self.ask("QUERY", "org.amqp.management", "self", body)
        assert answer.status == 200, answer.description
        table = answer.map()
        names, rows = table["attributeNames"], table["results"]
        assert isinstance(names, list) and isinstance(rows, list)
        assert answer.properties["count"] == len(rows)
        return [dict(zip(names, row, strict=True)) for row in rows]
