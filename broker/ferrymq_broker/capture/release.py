"""The release of streams that are not captured, apart from `service`, because a broker without
capture needs no more."""

from __future__ import annotations

from ferrymq_broker.broker import Broker
from ferrymq_broker.capture.options import HOLDER
from ferrymq_broker.event_log import log
from ferrymq_broker.nodes.streams.stream import Stream


def release(stream: Stream) -> None:
    """Release capture's hold of a stream. Called in a pass."""
    if stream.holds.release(HOLDER):
        log.info("a stream is not captured any more", stream=stream.address)


def release_all(broker: Broker) -> None:
    """Release all holds of capture, because capture is off. Called in a pass."""
    for space in broker.spaces.values():
        for node in space.nodes.values():
            if isinstance(node, Stream):
                release(node)
                if node.policy.capture:
                    log.warning(
                        "a stream is to be captured, but [capture] names no directory",
                        stream=node.address,
                    )
