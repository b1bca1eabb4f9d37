"""A client that wants everything and reads nothing, and one that is no longer there."""

from __future__ import annotations

from tests.hostile.site import Site
from tests.raw.frames import transfer_frame
from tests.raw.process import MIB
from tests.raw.values import NULL, TRUE, binary, data_section, uint

IDLE = 2


CONFIG = f"[limits]\nidle-time-out = {IDLE}\nclose-timeout = 1\n"


def test_a_reader_that_stops_reading(site: Site, address: str) -> None:
    """What waits for it is bounded, however much there is and however much it has asked for."""
    with site.client() as writer, site.client() as reader:
        writer.begin().sender(address)
        for number in range(600):
            writer.send(
                transfer_frame(
                    data_section(bytes(60_000)), 0, uint(number), binary(b"t"), settled=TRUE
                )
            )
        writer.send(transfer_frame(data_section(), 0, uint(600), binary(b"last")))
        writer.expect("disposition", "flow")
        before = site.broker.memory()
        reader.begin().receiver(address, credit=0x7FFFFFFF)
        # As long as it takes the broker to notice that nobody is there.
        site.witness.is_served(lambda: site.broker.memory_is_back(before, 6 * MIB))
        # The queue has all the others; the reader took what the kernel keeps for it.
        writer.receiver(address, credit=1, name="other", handle=7)
        assert writer.expect("transfer", "flow", "empty").payload


def test_a_client_that_is_gone_without_a_word(site: Site, address: str) -> None:
    """Closed when nothing has been heard of it for a while; others have its messages then."""
    with site.client() as gone, site.client() as heir:
        gone.begin().sender(address)
        gone.send(transfer_frame(data_section(b"kept"), 0, uint(0), binary(b"t"), settled=NULL))
        gone.expect("disposition")
        gone.receiver(address, credit=10)
        assert gone.expect("transfer", "flow").payload.endswith(b"kept")
        heir.begin().receiver(address, credit=10, name="heir")
        found = heir.read()
        while found is not None and found.name == "empty":
            # It says now and then that it is alive.
            heir.send(b"\0\0\0\x08\x02\0\0\0")
            found = heir.read()
        assert found is not None and found.name == "transfer"
        assert found.payload.endswith(b"kept")
        assert gone.verdict()[:2] == ("connection", "amqp:resource-limit-exceeded")
