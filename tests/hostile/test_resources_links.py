"""Sessions, links, nodes and what is said of them, without end."""

from __future__ import annotations

import pytest

from tests.hostile.site import Site
from tests.raw.client import Verdict
from tests.raw.frames import attach_frame, begin_frame, source, target
from tests.raw.process import MIB
from tests.raw.values import NULL, TRUE, binary, mapping, string, symbol, uint

LINKS = 200
EXCEEDED = "amqp:resource-limit-exceeded"


CONFIG = f"""[limits]
links = {LINKS}
channel-max = 63
attach-size = "4KiB"
attach-total = "64KiB"
unsettled-map = 100
dynamic-nodes = 50
"""


def _sender(number: int, channel: int = 0, handle: int | None = None, **more: bytes) -> bytes:
    return attach_frame(
        f"l{number}",
        number if handle is None else handle,
        source=source(),
        target=more.pop("target", target(string("everybodys"))),
        channel=channel,
        **more,
    )


def test_sessions_without_end(site: Site) -> None:
    def attack() -> None:
        with site.client() as client:
            client.open()
            client.send(*(begin_frame(channel) for channel in range(70)))
            verdict = client.verdict()
            assert verdict[:2] == ("connection", "amqp:connection:framing-error")
            assert "channel 64" in verdict.description

    site.endures(attack)


def test_links_without_end(site: Site) -> None:
    """On several sessions: the connection has a limit of its own, and the link pays."""

    def attack() -> None:
        with site.client() as client:
            client.begin().send(begin_frame(1))
            client.expect("begin")
            for number in range(LINKS):
                client.send(_sender(number, number % 2))
            client.send(_sender(LINKS))
            verdict = client.verdict()
            assert verdict[:2] == ("link", EXCEEDED)
            assert str(LINKS) in verdict.description
            # The others are what they were.
            client.close()

    site.endures(attack)


def test_refusals_that_are_not_answered(site: Site) -> None:
    """Who does not detach what was refused loses the session, and has memory to lose no longer."""

    def attack() -> None:
        with site.client() as client:
            client.begin()
            client.send(*(_sender(number) for number in range(LINKS + 1)))
            assert client.verdict()[:2] == ("link", EXCEEDED)
            client.send(*(_sender(number) for number in range(LINKS + 1, 2 * LINKS + 1)))
            verdict = client.verdict()
            while verdict[:2] == ("link", EXCEEDED):
                verdict = client.verdict()
            assert verdict[:2] == ("session", EXCEEDED)
            client.send(begin_frame(1))
            client.expect("begin")

    site.endures(attack)


def _refused(site: Site, frame: bytes) -> Verdict:
    with site.client() as client:
        client.begin().send(frame)
        verdict = client.verdict()
        # The session is unharmed.
        client.sender("fine", name="fine", handle=77)
        client.close()
    return verdict


@pytest.mark.parametrize("where", ["properties", "filter", "target"])
def test_an_attach_with_a_lot_to_say(site: Site, where: str) -> None:
    lot = mapping(*(part for at in range(700) for part in (symbol(f"key{at:05}"), uint(at))))
    frames = {
        "properties": _sender(0, properties=lot),
        "filter": attach_frame(
            "f", 0, receiver=True, source=source(string("x"), filters=lot), target=target()
        ),
        "target": _sender(0, target=target(string("x" * 5000))),
    }

    def attack() -> None:
        verdict = _refused(site, frames[where])
        assert verdict[:2] == ("link", EXCEEDED)
        assert "at most 4096" in verdict.description

    site.endures(attack)


def test_many_with_something_to_say(site: Site) -> None:
    """Each of them is small enough, all together are not."""
    some = mapping(symbol("a"), string("x" * 3000))

    def attack() -> None:
        with site.client() as client:
            client.begin()
            client.send(*(_sender(number, properties=some) for number in range(30)))
            verdict = client.verdict()
            assert verdict[:2] == ("link", EXCEEDED)
            assert "at most 65536" in verdict.description
            client.close()

    site.endures(attack)


def test_an_unsettled_map_of_any_size(site: Site) -> None:
    large = mapping(*(part for at in range(101) for part in (binary(at.to_bytes(4)), NULL)))

    def attack() -> None:
        verdict = _refused(site, _sender(0, unsettled=large))
        assert verdict[:2] == ("link", EXCEEDED)
        assert "101 deliveries" in verdict.description

    site.endures(attack)


def test_dynamic_nodes_without_end(site: Site) -> None:
    """Each is gone with its link; there are only so many at a time, and room again later."""

    def attack() -> None:
        with site.client() as client:
            client.begin()
            client.send(*(_sender(number, target=target(dynamic=TRUE)) for number in range(51)))
            verdict = client.verdict()
            assert verdict[:2] == ("link", EXCEEDED)
            assert "50 dynamic nodes" in verdict.description
            client.close()

    site.endures(attack, 8 * MIB)
