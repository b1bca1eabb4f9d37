"""The client verifies what the peer's attach grants (AMQP 1.0 §2.6.3, §2.7.3)."""

from __future__ import annotations

import pytest

import ferrymq
from ferrymq_types.transport import SenderSettleMode
from tests.raw.frames import source, target
from tests.raw.server import Server
from tests.raw.values import NULL, string, ubyte

UNSETTLED, SETTLED, MIXED = range(3)
LINKS = pytest.mark.parametrize("sends", [True, False], ids=["sender", "receiver"])


async def attach(
    sends: bool, asked: str, answered: bytes, mode: int = MIXED, answer: bytes = NULL
) -> None:
    """Attach a link to `asked` at a server that answers with an address and a settle mode."""

    def script(server: Server) -> None:
        with server.accept() as peer:
            peer.begin().attached(
                source_sent=None if sends else source(answered),
                target_sent=target(answered) if sends else None,
                snd_settle_mode=answer,
            )
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            link = connection.sender if sends else connection.receiver
            async with link(asked, snd_settle_mode=SenderSettleMode(mode)):
                pass


@pytest.mark.spec("2.6.3")
@LINKS
async def test_another_address_is_refused(sends: bool) -> None:
    with pytest.raises(ferrymq.LinkDetached, match="is 'other' instead of 'orders'"):
        await attach(sends, "orders", string("other"))


@LINKS
@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("orders", NULL),
        ("orders", string("orders")),
        ("orders", string("queue://orders")),
        ("queue://orders", string("orders")),
        ("/queues/orders", string("orders")),
        ("orders", string("orders::all")),
        ("orders", string("amqp://host/orders")),
    ],
    ids=["none", "same", "prefix", "stripped", "path", "queue behind it", "url"],
)
async def test_an_address_that_is_put_otherwise_is_the_same(
    asked: str, answered: bytes, sends: bool
) -> None:
    await attach(sends, asked, answered)


@pytest.mark.spec("2.6.3")
@pytest.mark.parametrize(
    ("sends", "mode", "answer"),
    [(True, UNSETTLED, SETTLED), (False, UNSETTLED, SETTLED), (False, SETTLED, UNSETTLED)],
)
async def test_the_opposite_settle_mode_is_refused(sends: bool, mode: int, answer: int) -> None:
    with pytest.raises(ferrymq.LinkDetached, match="sender-settle-mode is"):
        await attach(sends, "q", string("q"), mode, ubyte(answer))


@pytest.mark.parametrize("answer", [NULL, ubyte(MIXED)], ids=["default", "mixed"])
@pytest.mark.parametrize("mode", [UNSETTLED, SETTLED])
@LINKS
async def test_a_peer_that_answers_mixed_will_do(sends: bool, mode: int, answer: bytes) -> None:
    await attach(sends, "q", string("q"), mode, answer)


@pytest.mark.parametrize(("sends", "mode"), [(True, SETTLED), (True, MIXED), (False, MIXED)])
@pytest.mark.parametrize("answer", [UNSETTLED, SETTLED])
async def test_what_was_not_asked_for_is_for_the_peer_to_choose(
    sends: bool, mode: int, answer: int
) -> None:
    await attach(sends, "q", string("q"), mode, ubyte(answer))
