"""Dynamic nodes for answers and for a meeting: `python examples/broker/dynamic_nodes.py`."""

from __future__ import annotations

import asyncio

import ferrymq
from ferrymq import LinkDetached, Message
from ferrymq_broker.config import Config, Listener
from ferrymq_broker.server import BrokerServer
from ferrymq_types.messaging import DeleteOnNoLinks

CONFIG = Config(listener=[Listener(url="amqp://127.0.0.1:0")])


async def serve(connection: ferrymq.Connection) -> None:
    """Answer one question, to the address in its reply-to."""
    async with connection.receiver("questions") as questions:
        question = await questions.receive(timeout=5)
        anywhere = await connection.sender(None)
        reply_to = question.message.reply_to
        await anywhere.send(Message(body=f"{question.message.body} 42", to=reply_to))
        await question.accept()


async def main() -> None:
    """Ask with a dynamic queue for the answer; meet in a topic that ends with its last link."""
    async with BrokerServer(CONFIG) as server, ferrymq.connect(server.url) as connection:
        server_task = asyncio.create_task(serve(connection))
        replies = await connection.receiver(None, dynamic=True)
        asking = await connection.sender("questions")
        await asking.send(Message(body="What is it?", reply_to=replies.address))
        print((await replies.receive(timeout=5)).message.body)
        await server_task
        gone = replies.address
        await replies.close()
        try:
            await connection.sender(gone)
        except LinkDetached as refused:
            print("with its link the queue is gone:", refused.condition)

        host = await connection.sender(
            None,
            dynamic=True,
            capabilities=["topic"],
            dynamic_node_properties={"lifetime-policy": DeleteOnNoLinks()},
        )
        guests = [await connection.receiver(host.address) for _ in range(2)]
        await host.send(Message(body="welcome"))
        await host.close()
        for guest in guests:
            print("a guest is told:", (await guest.receive(timeout=5)).message.body)


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# What is it? 42
# with its link the queue is gone: amqp:not-found
# a guest is told: welcome
# a guest is told: welcome
