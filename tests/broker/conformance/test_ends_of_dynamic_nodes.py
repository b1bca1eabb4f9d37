"""A dynamic node is gone before whatever ends it is answered (the broker book §2.3.13)."""

from __future__ import annotations

import pytest

from ferrymq_types.messaging import (
    DeleteOnClose,
    DeleteOnNoLinks,
    DeleteOnNoLinksOrMessages,
    DeleteOnNoMessages,
    Source,
)
from tests.broker.harness import Client, Network, Receiver

POLICIES = [
    DeleteOnClose(),
    DeleteOnNoLinks(),
    DeleteOnNoMessages(),
    DeleteOnNoLinksOrMessages(),
]


def create(client: Client, policy: object) -> tuple[Receiver, str]:
    properties = {"lifetime-policy": policy}
    source = Source(dynamic=True, dynamic_node_properties=properties)
    receiver = client.receiver(None, source=source)
    address = receiver.remote_source.address
    assert address is not None
    return receiver, address


@pytest.mark.spec("broker-2.3.13")
@pytest.mark.parametrize("how", ["detach", "end", "close"])
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_the_answer_comes_after_the_end_of_the_node(net: Network, policy: object, how: str) -> None:
    client = net.connect()
    receiver, address = create(client, policy)
    there: list[bool] = []
    original = client.handler.output._write

    def watch(data: bytes) -> None:
        there.append(address in net.space.nodes)
        original(data)

    client.handler.output._write = watch
    if how == "detach":
        receiver.close()
    elif how == "end":
        client.session.end()
        net.run()
    else:
        client.close()
    assert there and not any(there)


@pytest.mark.spec("3.5.9")
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_no_policy_ends_a_node_before_the_link_that_made_it(net: Network, policy: object) -> None:
    owner, other = net.connect(), net.connect()
    receiver, address = create(owner, policy)
    sender, reader = other.sender(address), other.receiver(address)
    receiver.credit(1)
    sender.send(b"a")
    receiver.settle(None)
    sender.close()
    reader.close()
    other.close()
    net.advance(100_000)
    assert address in net.space.nodes and not receiver.detached
    receiver.close()
