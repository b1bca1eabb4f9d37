"""Passes of the broker, one at a time."""

from __future__ import annotations

from tests.broker.harness import Network


def turn(net: Network) -> None:
    """Make each call that waits in the event loop now, and none that these cause."""
    todo = net.later.copy()
    net.later.clear()
    for call in todo:
        call()
