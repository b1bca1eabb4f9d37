"""What is in a queue: messages and counts, and waiting for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ferrymq.message import Message

# Seconds of real time between two looks at a queue, and the default for the longest wait.
_LOOK: Final = 0.005
_PATIENCE: Final = 5.0


@dataclass(frozen=True)
class QueuedMessage:
    """A message in a queue, as it would be delivered next.

    `state` is ``available``, ``acquired`` (a consumer holds it) or ``scheduled``. `failures` is how
    many deliveries have failed. `sequence` is its number in the queue.
    """

    message: Message
    state: str
    sequence: int
    failures: int = 0


class QueueContents:
    """The messages in one queue, read at each call; nothing changes in the queue.

    `look` returns all messages: those to deliver in the order of delivery, then the scheduled ones.
    """

    def __init__(self, address: str, look: Callable[[], list[QueuedMessage]]) -> None:
        self.address: str = address
        self._look = look

    def __repr__(self) -> str:
        return f"<QueueContents {self.address!r}>"

    def __len__(self) -> int:
        return len(self._look())

    def __iter__(self) -> Iterator[QueuedMessage]:
        return iter(self._look())

    def __bool__(self) -> bool:
        return True

    def messages(self, state: str = "") -> list[QueuedMessage]:
        """Return the messages, or those in a state."""
        return [each for each in self._look() if state in ("", each.state)]

    def bodies(self, state: str = "") -> list[object]:
        """Return the bodies of the messages, or of those in a state."""
        return [each.message.body for each in self.messages(state)]

    def count(self, state: str = "") -> int:
        """Return the number of messages, or of those in a state."""
        return len(self.messages(state))

    # -- assertions ----------------------------------------------------------------------

    def assert_empty(self) -> None:
        """Raise AssertionError, which shows the messages, if there are any."""
        self.assert_bodies()

    def assert_count(self, count: int, state: str = "") -> None:
        """Raise AssertionError unless there are so many messages, or so many in a state."""
        found = self.messages(state)
        if len(found) != count:
            raise AssertionError(self._differs(f"{count} messages{_in(state)}", found))

    def assert_bodies(self, *bodies: object, state: str = "") -> None:
        """Raise AssertionError unless these are the bodies of the messages, in this order."""
        found = self.messages(state)
        if [each.message.body for each in found] != list(bodies):
            wanted = f"the bodies {list(bodies)!r}{_in(state)}" if bodies else "no message"
            raise AssertionError(self._differs(wanted, found))

    def wait_count(self, count: int, state: str = "", timeout: float = _PATIENCE) -> None:
        """Wait until there are so many messages. Raises AssertionError after `timeout` seconds of
        real time. For blocking code; `until_count` is for asyncio."""
        deadline = time.monotonic() + timeout
        while self.count(state) != count and time.monotonic() < deadline:
            time.sleep(_LOOK)
        self.assert_count(count, state)

    async def until_count(self, count: int, state: str = "", timeout: float = _PATIENCE) -> None:
        """Wait until there are so many messages, in asyncio. See `wait_count`."""
        deadline = time.monotonic() + timeout
        while self.count(state) != count and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK)
        self.assert_count(count, state)

    def _differs(self, wanted: str, found: list[QueuedMessage]) -> str:
        lines = [f"the queue {self.address!r} has not {wanted}, but {len(found)} messages"]
        lines += [f"  {each.state:9} {each.message.body!r}" for each in found[:20]]
        if len(found) > 20:
            lines.append(f"  … and {len(found) - 20} more")
        return "\n".join(lines)


def _in(state: str) -> str:
    return f" ({state})" if state else ""
