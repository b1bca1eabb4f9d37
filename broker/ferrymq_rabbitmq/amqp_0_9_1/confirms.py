"""Publisher confirms: the numbers of published messages, and their acknowledgements."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq_types_0_9_1.basic import BasicAck, BasicNack

if TYPE_CHECKING:
    from ferrymq_rabbitmq.amqp_0_9_1.channel import Channel


@final
class Confirms:
    """The confirms of one channel. `last` is the number of the last published message.

    Messages are confirmed in their order, once for all messages of a pass: `told` is the last that
    was confirmed. `refused` has those that no queue has taken.
    """

    __slots__ = ("last", "told", "refused")

    def __init__(self) -> None:
        self.last: i64 = 0
        self.told: i64 = 0
        self.refused: list[int] = []

    def refuse(self) -> None:
        """Note that the last message was refused."""
        self.refused.append(int(self.last))

    def write(self, channel: Channel) -> bool:
        """Write the confirms of all messages so far; return whether there were any."""
        if self.told == self.last:
            return False
        for number in self.refused:
            self._acknowledge(channel, number - 1)
            channel.send(BasicNack(delivery_tag=number))
            self.told = number
        self.refused.clear()
        self._acknowledge(channel, self.last)
        return True

    def _acknowledge(self, channel: Channel, number: i64) -> None:
        if number > self.told:
            channel.send(BasicAck(delivery_tag=int(number), multiple=number - self.told > 1))
            self.told = number
