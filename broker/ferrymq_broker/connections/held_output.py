"""Output that waits: what a client is told is true once it is on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

if TYPE_CHECKING:
    from ferrymq.engine.connection import Connection


@final
class HeldOutput:
    """The output of one connection, as long as it tells of changes that are not on disk yet.

    `pieces` are in the order in which they are to be written, each with the batch it waits for;
    `bytes` is their size. `held` is whether the broker comes back to them after its next batch.
    """

    __slots__ = ("pieces", "bytes", "held")

    def __init__(self) -> None:
        self.pieces: list[tuple[int, bytes]] = []
        self.bytes: i64 = 0
        self.held = False

    def take(self, connection: Connection, need: i64, stable: i64, transfers: bool) -> bytes:
        """What may be told when the batch `stable` is on disk; the rest is kept.

        What has gathered in the connection waits for the batch `need`. A client that causes
        changes all the time is told of the first while the next are on their way to the disk.
        `transfers` is whether those that wait for room in the output go on.
        """
        pieces = self.pieces
        if connection.has_output:
            data = connection.data_to_send(transfers)
            if data:
                pieces.append((int(need), data))
                self.bytes += len(data)
        count: i64 = 0
        while count < len(pieces) and pieces[count][0] <= stable:
            count += 1
        if count == 0:
            return b""
        data = b"".join([piece for _, piece in pieces[:count]])
        del pieces[:count]
        self.bytes -= len(data)
        return data
