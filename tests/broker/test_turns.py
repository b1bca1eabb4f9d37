"""Turns: a client that sends much, or what takes long, is read no faster than others are."""

from __future__ import annotations

from collections.abc import Callable

from ferrymq_broker.server.read_fairness import (
    LEAST,
    MORE_TO_COME,
    MOST,
    ROUND,
    SHORT,
    TURN,
    ReadTurns,
    Round,
)


class Transport:
    """The event loop and the socket of one connection, whose input takes `cost` seconds a byte.

    It shares the event loop, and its rounds, with that of another, if there is one.
    """

    def __init__(self, cost: float = 0.0, other: Transport | None = None) -> None:
        self.cost = cost
        self.now = 0.0
        self.taken: list[bytes] = []
        self.began: list[float] = []
        self.reading = True
        self.due: list[Callable[[], object]] = [] if other is None else other.due
        self.round = Round(self.soon) if other is None else other.round
        # What the socket has while the event loop does not read.
        self.socket: list[bytes] = []
        self.turns = ReadTurns(
            self.take, self.stop, self.start, self.round, self.soon, lambda: self.now, self.read
        )

    def soon(self, call: Callable[[], object]) -> None:
        self.due.append(call)

    def take(self, data: bytes, began: float) -> None:
        self.taken.append(data)
        self.began.append(began)
        self.now += self.cost * len(data)

    def read(self) -> bytes:
        assert not self.reading
        return self.socket.pop(0) if self.socket else b""

    def stop(self) -> None:
        self.reading = False

    def start(self) -> None:
        self.reading = True

    def next_round(self) -> None:
        due = self.due.copy()
        self.due.clear()
        for call in due:
            call()


def test_what_is_small_is_taken_at_once() -> None:
    transport = Transport()
    transport.turns.receive(b"abc")
    assert transport.taken == [b"abc"] and transport.reading and not transport.due


def test_each_turn_is_told_when_it_has_begun() -> None:
    transport = Transport(cost=TURN / 100)
    transport.now = 1.0
    transport.turns.receive(bytes(100))
    assert transport.began == [1.0]
    transport.now = 2.0
    transport.turns.receive(bytes(MORE_TO_COME))
    assert transport.began == [1.0, 2.0]
    transport.turns.hold()
    transport.turns.receive(b"rest")
    transport.now = 3.0
    transport.turns.finish()
    assert transport.began == [1.0, 2.0, 3.0]


def test_after_a_full_read_others_come_first() -> None:
    transport = Transport()
    transport.turns.receive(bytes(MORE_TO_COME))
    assert len(transport.taken) == 1 and not transport.reading
    transport.next_round()
    assert transport.reading and not transport.due


def test_after_a_full_read_the_socket_is_read_in_turns() -> None:
    transport = Transport()
    full = bytes(MORE_TO_COME)
    transport.socket = [full, full, b"short", b"not yet"]
    transport.turns.receive(full)
    for count in (2, 3):
        transport.next_round()
        assert len(transport.taken) == count and not transport.reading
    while transport.due:
        transport.next_round()
    # Less than a full read: the event loop says when there is more.
    assert transport.taken[3:] == [b"short"] and transport.reading


def test_after_a_turn_that_took_long_the_event_loop_reads() -> None:
    transport = Transport(cost=TURN)
    transport.socket = [b"later"]
    transport.turns.receive(b"ab")
    transport.next_round()
    while transport.due:
        transport.next_round()
    assert transport.taken == [b"ab"] and transport.reading


def test_the_socket_of_a_client_that_does_not_read_is_not_read() -> None:
    transport = Transport()
    transport.socket = [b"later"]
    transport.turns.receive(bytes(MORE_TO_COME))
    transport.turns.hold()
    transport.next_round()
    assert len(transport.taken) == 1 and not transport.reading
    transport.turns.close()
    transport.turns.go_on()
    assert transport.socket == [b"later"]


def test_what_takes_long_is_cut_into_turns_and_nothing_is_lost() -> None:
    transport = Transport(cost=TURN / 10_000)
    data = bytes(range(256)) * 800
    transport.turns.receive(data)
    # Nobody could know; from now on it is known.
    assert transport.taken == [data] and not transport.reading
    transport.next_round()
    transport.turns.receive(data)
    rounds = 0
    while transport.due:
        transport.next_round()
        rounds += 1
    assert transport.reading
    assert b"".join(transport.taken) == data + data
    assert rounds >= len(data) // 20_000
    assert max(len(piece) for piece in transport.taken[1:]) <= 20_000


def test_a_turn_has_bounds() -> None:
    transport = Transport(cost=1.0)
    transport.turns.receive(b"x" * 100_000)
    transport.next_round()
    transport.turns.receive(b"x" * 100_000)
    assert len(transport.taken[1]) == LEAST
    transport.cost = 0.0
    while transport.due:
        transport.next_round()
    transport.turns.receive(bytes(4 * MOST))
    while transport.due:
        transport.next_round()
    assert max(len(piece) for piece in transport.taken[2:]) == MOST


def test_a_client_that_does_not_read_waits_with_what_it_has_sent() -> None:
    transport = Transport()
    transport.turns.receive(bytes(2 * MOST))
    transport.turns.hold()
    transport.next_round()
    transport.turns.receive(b"more")
    assert len(transport.taken) == 1 and not transport.reading
    transport.turns.go_on()
    assert not transport.reading
    while transport.due:
        transport.next_round()
    assert b"".join(transport.taken) == bytes(2 * MOST) + b"more" and transport.reading


def test_held_without_anything_left_it_is_read_again_at_once() -> None:
    transport = Transport()
    transport.turns.hold()
    transport.turns.hold()
    assert not transport.reading
    transport.turns.go_on()
    transport.turns.go_on()
    assert transport.reading and not transport.due


def test_what_had_come_before_the_end_is_not_lost() -> None:
    transport = Transport()
    transport.turns.receive(bytes(MOST) + b"end")
    transport.turns.finish()
    assert transport.taken[-1] == b"end"
    transport.next_round()
    assert len(transport.taken) == 2


def test_what_all_clients_send_at_once_is_worked_through_in_rounds() -> None:
    first = Transport(cost=TURN / 4_000)
    others = [Transport(first.cost, first) for _ in range(20)]
    for one in [first, *others]:
        one.turns.receive(bytes(3_000))
    rounds = []
    while True:
        before = sum(one.now for one in [first, *others])
        rounds.append(before - sum(rounds))
        if not first.due:
            break
        first.next_round()
    assert max(rounds) < ROUND + TURN
    assert len(rounds) > 20 * 3_000 * first.cost / (ROUND + TURN)
    assert all(one.taken == [bytes(3_000)] and one.reading for one in [first, *others])


def test_what_is_short_waits_for_nobody() -> None:
    busy = Transport(cost=ROUND)
    busy.turns.receive(b"ab")
    assert busy.round.spent > ROUND
    other = Transport(0.0, busy)
    other.turns.receive(bytes(SHORT))
    assert other.taken == [bytes(SHORT)]
    third = Transport(0.0, busy)
    third.turns.receive(bytes(SHORT + 1))
    assert third.taken == [] and not third.reading
    for _ in range(2):
        third.next_round()
    assert third.taken == [bytes(SHORT + 1)] and third.reading
