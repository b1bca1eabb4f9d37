"""Whatever a peer sends, `receive_data` does not raise and the engine knows where it stands."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq.engine import ReceiverLink, SenderLink
from ferrymq_types.messaging import Accepted, Released
from ferrymq_types.transport import (
    Detach,
    Disposition,
    End,
    Role,
)
from tests.support.engine_user import THEIRS, User, said
from tests.support.scenes import MAX32, peer_attach, peer_begin, peer_flow, transfer
from tests.support.script import encoded, on


@pytest.mark.parametrize("initiator", [False, True])
@pytest.mark.parametrize("together", [False, True])
def test_the_script_itself_is_orderly(initiator, together):
    user = User(initiator)
    pieces = said(initiator)
    if together and not initiator:
        # All in two reads: only for credit does a peer have to wait.
        pieces = [b"".join(pieces[:8]), b"".join(pieces[8:])]
    for piece in pieces:
        user.receive(piece)
    assert user.engine.finished and user.engine.failure is None
    user.check()


@pytest.mark.parametrize("initiator", [False, True])
def test_the_end_of_the_transport_at_every_byte(initiator):
    data = b"".join(said(initiator))
    for size in range(len(data)):
        user = User(initiator)
        user.receive(data[:size])
        user.check()


@pytest.mark.parametrize("initiator", [False, True])
def test_every_byte_replaced(initiator):
    pieces = said(initiator)
    for number, piece in enumerate(pieces):
        for at in range(len(piece)):
            for value in (0, 0x40, 0xFF, piece[at] ^ 1):
                changed = bytearray(piece)
                changed[at] = value
                user = User(initiator)
                for other in (*pieces[:number], bytes(changed), *pieces[number + 1 :]):
                    user.receive(other)
                user.check()


def cut_out(random: Random, pieces: list[bytes]) -> None:
    del pieces[random.randrange(len(pieces))]


def double(random: Random, pieces: list[bytes]) -> None:
    pieces.insert(random.randrange(len(pieces)), random.choice(pieces))


def swap(random: Random, pieces: list[bytes]) -> None:
    i, j = random.randrange(len(pieces)), random.randrange(len(pieces))
    pieces[i], pieces[j] = pieces[j], pieces[i]


def flip(random: Random, pieces: list[bytes]) -> None:
    i = random.randrange(len(pieces))
    piece = bytearray(pieces[i])
    if piece:
        piece[random.randrange(len(piece))] = random.randrange(256)
    pieces[i] = bytes(piece)


def lengthen(random: Random, pieces: list[bytes]) -> None:
    i = random.randrange(len(pieces))
    at = random.randrange(len(pieces[i]) + 1)
    pieces[i] = pieces[i][:at] + random.randbytes(random.randrange(20)) + pieces[i][at:]


def shorten(random: Random, pieces: list[bytes]) -> None:
    i = random.randrange(len(pieces))
    at = random.randrange(len(pieces[i]) + 1)
    pieces[i] = pieces[i][:at] + pieces[i][at + random.randrange(8) :]


MUTATIONS: list[Callable[[Random, list[bytes]], None]] = [
    cut_out, double, double, swap, swap, flip, lengthen, shorten,
]  # fmt: skip


@given(
    initiator=st.booleans(),
    seed=st.integers(0, 1 << 32),
    mutations=st.lists(st.sampled_from(MUTATIONS), max_size=6),
    cuts=st.lists(st.integers(1, 40), max_size=10),
)
def test_mutated_streams(initiator, seed, mutations, cuts):
    random = Random(seed)
    pieces = said(initiator)
    for mutate in mutations:
        mutate(random, pieces)
    data = b"".join(pieces)
    user = User(initiator)
    now = 0.0
    while data:
        size = cuts.pop() if cuts else random.choice((1, 8, 30, 100, 10_000))
        user.receive(data[:size], now)
        data = data[size:]
        now += random.random()
        due = user.engine.next_deadline()
        if due is not None and due <= now:
            user.engine.handle_timeout(now)
            user.work()
    user.check()


# Frames in any order, each of them well formed: nonsense that the decoder lets through.
ANY_U32 = st.sampled_from([0, 1, 2, 3, 7, 8, 100, MAX32 // 2, MAX32 // 2 + 1, MAX32])
HANDLE = st.sampled_from([0, 1, 2, 7, 8, MAX32])
MAYBE = st.sampled_from([None, False, True])
FRAMES = st.one_of(
    st.builds(
        peer_begin,
        st.sampled_from([None, None, 0, 1, 9]),
        next_outgoing_id=ANY_U32,
        incoming_window=ANY_U32,
        handle_max=ANY_U32,
    ),
    st.builds(
        peer_attach,
        st.sampled_from(["a", "b", "r", "s", "x" * 600]),
        HANDLE,
        st.sampled_from(Role),
        max_message_size=ANY_U32,
    ),
    st.builds(
        peer_flow,
        next_incoming_id=st.none() | ANY_U32,
        incoming_window=ANY_U32,
        next_outgoing_id=ANY_U32,
        handle=st.none() | HANDLE,
        delivery_count=st.none() | ANY_U32,
        link_credit=st.none() | ANY_U32,
        drain=st.booleans(),
        echo=st.booleans(),
    ),
    st.builds(
        transfer,
        HANDLE,
        st.none() | ANY_U32,
        st.sampled_from([None, b"", b"t", b"t" * 33]),
        more=st.booleans(),
        settled=MAYBE,
        aborted=st.booleans(),
    ),
    st.builds(
        Disposition,
        role=st.sampled_from(Role),
        first=ANY_U32,
        last=st.none() | ANY_U32,
        settled=st.booleans(),
        state=st.sampled_from([None, Accepted(), Released()]),
    ),
    st.builds(Detach, handle=HANDLE, closed=st.booleans()),
    st.just(End()),
)


@given(
    initiator=st.booleans(),
    frames=st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 8]), FRAMES), max_size=40),
    early=st.booleans(),
)
def test_well_formed_nonsense(initiator, frames, early):
    user = User(initiator)
    for piece in said(initiator)[: 4 if initiator else 3]:
        user.receive(piece)
    body = [encoded(THEIRS)] + [encoded(on(channel, frame)) for channel, frame in frames]
    for data in [b"".join(body)] if early else body:
        user.receive(data)
        for session in user.engine.channels.by_local.values():
            assert session.outgoing.remote_window >= 0
            for link in session.links.values():
                assert 0 <= link.delivery_count <= MAX32
                assert isinstance(link, SenderLink | ReceiverLink) and link.credit >= 0
    user.check()


@given(data=st.binary(max_size=200), initiator=st.booleans())
def test_noise(data, initiator):
    user = User(initiator)
    user.receive(data)
    user.check()
