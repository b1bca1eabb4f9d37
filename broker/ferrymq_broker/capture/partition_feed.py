"""The feed of a partition: it reads the partition for capture, chunk by chunk."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from ferrymq.chunks import ChunkBuilder
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.event_log import log
from ferrymq_broker.nodes.streams.partition import StreamPartition

# The limits of a chunk, which is read in one go while the broker's connections wait.
_RECORDS: Final = 1024
_BYTES: Final = 256 * 1024


@final
class PartitionFeed:
    """A reader of a partition. It reads the record at the offset `position` next.

    `lost` counts records that cannot be read. They are missing in the files.
    """

    __slots__ = ("partition", "position", "lost", "_builder")

    def __init__(self, partition: StreamPartition, position: i64) -> None:
        self.partition: StreamPartition = partition
        self.position: i64 = position
        self.lost: i64 = 0
        self._builder = ChunkBuilder()

    def behind(self) -> i64:
        """Return the number of records that are still to be read."""
        return self.partition.log.next - self.position

    def read(self) -> bytes:
        """Return the next chunk; empty if there is nothing to read, or only records that cannot be
        read.

        A chunk begins at the end of the last one, or later if the records in between were dropped.
        """
        partition = self.partition
        stream_log = partition.log
        if self.position < stream_log.first:
            log.warning(
                "records were dropped before they were captured",
                stream=partition.stream.address,
                partition=int(partition.number),
                first=int(self.position),
                next=int(stream_log.first),
            )
            self.position = stream_log.first
        builder = self._builder
        builder.begin(self.position)
        size: i64 = 0
        while self.position < stream_log.next and builder.count < _RECORDS and size < _BYTES:
            try:
                segment = partition.find(self.position)
            except BrokerError as error:
                if builder.count > 0:
                    break
                self._leave_out(error)
                builder.begin(self.position)
                size += 4096
                continue
            index = self.position - segment.first
            if index >= segment.count:
                break
            formats = segment.formats
            while index < segment.count and builder.count < _RECORDS and size < _BYTES:
                payload = segment.payloads[index]
                format: i64 = 0
                if formats is not None:
                    format = formats.get(index, 0)
                builder.add(payload, segment.times[index], self.position, format)
                size += len(payload)
                self.position += 1
                index += 1
        if builder.count == 0:
            return b""
        return builder.build(self.position, stream_log.next)

    def _leave_out(self, error: BrokerError) -> None:
        log.error(
            "a record cannot be captured",
            stream=self.partition.stream.address,
            partition=int(self.partition.number),
            offset=int(self.position),
            reason=error.description,
        )
        self.position += 1
        self.lost += 1
