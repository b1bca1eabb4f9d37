"""Ask a service and wait for its answer, without an event loop.

make run                             # in one terminal
python examples/client_blocking.py   # in another
"""

from __future__ import annotations

import sys
import threading

from ferrymq import Message, blocking


def serve(connection: blocking.Connection) -> None:
    """Answer one request: double the number in it."""
    answers = connection.sender(None)
    with connection.receiver("double") as requests:
        delivery = requests.receive(timeout=10)
        request = delivery.message
        answers.send(
            Message(2 * request.body, to=request.reply_to, correlation_id=request.message_id)
        )
        delivery.accept()


def main(url: str) -> None:
    """Run a service in a thread and call it with a dynamic node for the answer."""
    with blocking.connect(url, timeout=5) as connection:
        service = threading.Thread(target=serve, args=(connection,))
        service.start()
        with connection.receiver(None, dynamic=True) as replies:
            requests = connection.sender("double")
            requests.send(Message(21, message_id="question-1", reply_to=replies.address))
            reply = replies.receive(timeout=10)
            print(f"the answer to {reply.message.correlation_id!r} is {reply.message.body}")
            reply.accept()
        service.join()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "amqp://localhost")
