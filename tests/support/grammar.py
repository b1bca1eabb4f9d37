"""What a peer may rely on in everything the engine writes, whatever was done to it."""

from __future__ import annotations

from ferrymq.engine.frames import EMPTY_FRAME
from ferrymq_types.transport import Attach, Begin, Close, Detach, End, Flow, Open, Transfer
from tests.support.script import AMQP_HEADER, Raw, parse


def check_grammar(output: bytes) -> None:
    """Assert the order of what was sent (AMQP 1.0 §2.4.1, §2.4.3, §2.5.5, §2.6.2)."""
    opened = closed = False
    sessions: dict[int, set[int]] = {}
    for item in parse(output):
        assert not closed, f"{item} after the close"
        if isinstance(item, Raw):
            assert item.data != EMPTY_FRAME or opened, "an empty frame before the open"
            assert item.data[:4] != AMQP_HEADER[:4] or not opened, "a header after the open"
            continue
        body, channel = item.body, item.channel
        if type(body).__name__.startswith("Sasl"):
            assert not opened
        elif isinstance(body, Open):
            assert not opened, "a second open"
            opened = True
        elif isinstance(body, Close):
            assert opened, "a close without an open"
            closed = True
        elif isinstance(body, Begin):
            assert opened, "a begin before the open"
            assert channel not in sessions, f"a second begin on channel {channel}"
            sessions[channel] = set()
        else:
            assert channel in sessions, f"{body} on channel {channel}, which has no session"
            handles = sessions[channel]
            if isinstance(body, End):
                del sessions[channel]
            elif isinstance(body, Attach):
                assert body.handle not in handles, f"a second attach of handle {body.handle}"
                handles.add(body.handle)
            elif isinstance(body, Detach):
                handles.remove(body.handle)
            elif isinstance(body, Transfer):
                assert body.handle in handles, f"a transfer for handle {body.handle}"
            elif isinstance(body, Flow):
                assert body.handle is None or body.handle in handles
