"""What somebody does who manages the nodes meanwhile."""

from __future__ import annotations

from ferrymq_broker.config.nodes import policy_attributes
from ferrymq_broker.management.setup import install
from ferrymq_broker.nodes.queues.queue import Queue
from tests.broker.chaos.accounts import Account
from tests.broker.chaos.consistency import all_queues
from tests.broker.chaos.traffic import Traffic
from tests.broker.chaos.world import (
    ALIASES,
    EXCHANGES,
    KEYS,
    QUEUES,
    STREAMS,
    TOPICS,
    random_policy,
    stream_policy,
)
from tests.broker.management.asker import Asker


class Keeping(Traffic):
    """Purge, move, change, delete and make nodes under everybody's hands."""

    def some_queue(self) -> Queue | None:
        node = self.net.space.nodes.get(self.random.choice(QUEUES))
        return node if isinstance(node, Queue) else None

    def purge(self) -> None:
        """Everything that waits goes."""
        queue = self.some_queue()
        if queue is not None:
            self.say(queue.address)
            account = self.account(queue)
            account.purged += self.count(self.keeper.ask("PURGE", "queue", queue.address).map())

    def move(self) -> None:
        """What waits goes to another queue."""
        queue, other = self.some_queue(), self.some_queue()
        if queue is None or other is None or queue is other:
            return
        count = self.random.choice((1, 3, 1000))
        self.say(f"{count} of {queue.address} to {other.address}")
        answer = self.keeper.ask(
            "MOVE", "queue", queue.address, {"target": other.address, "count": count}
        )
        if answer.status == 200:
            self.account(queue).moved += self.count(answer.map())

    @staticmethod
    def count(body: dict[str, object]) -> int:
        count = body["count"]
        assert isinstance(count, int)
        return count

    def update(self) -> None:
        """A queue gets another policy, wholly or in one setting."""
        queue = self.some_queue()
        if queue is None:
            return
        account = self.account(queue)
        account.balance()
        attributes = policy_attributes(random_policy(self.random, self.stored))
        if self.random.random() < 0.7:
            key = self.random.choice(list(attributes))
            attributes = {key: attributes[key]}
        self.say(f"{queue.address} {attributes}")
        answer = self.keeper.ask("UPDATE", "queue", queue.address, attributes)
        assert answer.status in (200, 400), answer

    def replace(self) -> None:
        """A node goes, or comes again."""
        names = [*QUEUES] if self.unique else [*QUEUES, *TOPICS, *STREAMS]
        name = self.random.choice(names)
        kind = "queue" if name in QUEUES else "topic" if name in TOPICS else "stream"
        if name in self.net.space.nodes:
            self.say(f"delete {name}")
            assert self.keeper.ask("DELETE", kind, name).status == 204
        else:
            self.say(f"create {name}")
            attributes: dict[str, object] = {}
            if kind == "queue":
                attributes = policy_attributes(random_policy(self.random, self.stored))
            elif kind == "stream":
                policy = stream_policy(self.random, self.random.choice((1, 3)))
                attributes = policy_attributes(policy) | {"segment-bytes": 1024}
            answer = self.keeper.ask("CREATE", kind, name, attributes)
            assert answer.status == 201 or (answer.status, name in ALIASES) == (409, True), answer

    def restart(self) -> None:
        """The broker stops without a word, and starts with what it has stored."""
        if not self.stored:
            return
        self.actors.clear()
        self.accounts.clear()
        self.net.restart()
        if self.net.steps:
            # What a message has lived before a restart, only the wall clock knows.
            self.lives.clear()
        install(self.net.space, self.net.broker)
        self.keeper = Asker(self.net)
        for queue in all_queues(self.net.broker):
            self.accounts[queue] = Account(queue, True)
        self.happened["restarts"] += 1

    def cancel(self) -> None:
        """A scheduled message is not to come."""
        queue = self.some_queue()
        if queue is not None:
            sequences = [self.random.randrange(1, 20) for _ in range(3)]
            self.say(f"{queue.address} {sequences}")
            answer = self.keeper.ask(
                "CANCEL-SCHEDULED", "queue", queue.address, {"sequences": sequences}
            )
            assert answer.status == 200

    def alias(self) -> None:
        """An alias comes, goes, or leads elsewhere."""
        name = self.random.choice(ALIASES)
        body: dict[str, object] = {"address": self.random.choice(QUEUES)}
        operation = self.random.choice(("CREATE", "UPDATE", "DELETE"))
        self.say(f"{operation} {name} {body}")
        answer = self.keeper.ask(operation, "alias", name, None if operation == "DELETE" else body)
        assert answer.status < 500, answer

    def bind(self) -> None:
        """A binding comes or goes."""
        if self.unique:
            return
        body: dict[str, object] = {
            "source": self.random.choice(EXCHANGES),
            "destination": self.random.choice((*QUEUES, *TOPICS, *STREAMS, *EXCHANGES)),
            "key": self.random.choice(KEYS),
        }
        operation = self.random.choice(("CREATE", "DELETE"))
        self.say(f"{operation} {body}")
        answer = self.keeper.ask(operation, "binding", None, body)
        assert answer.status < 500, answer
