"""The requests of one virtual host, over AMQP 1.0 and over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrymq_rabbitmq.management.binding_requests import BindingRequests
from ferrymq_rabbitmq.management.exchange_requests import ExchangeRequests
from ferrymq_rabbitmq.management.queue_requests import QueueRequests

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace


class HostRequests:
    """The handlers of requests about `queues`, `exchanges` and `bindings`."""

    def __init__(self, space: AddressSpace) -> None:
        self.queues = QueueRequests(space)
        self.exchanges = ExchangeRequests(space)
        self.bindings = BindingRequests(space)
