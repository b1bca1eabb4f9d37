"""Turns: a client that sends much, or what takes long, is read no faster than others are."""

from __future__ import annotations

from collections.abc import Callable

from ferrymq_broker.server.turns import LEAST, MORE_TO_COME, MOST, TURN, Turns


class Transport:
    """The event loop and the socket of one connection, whose input takes `cost` seconds a byte."""

    def __init__(self, cost: float = 0.0) -> None:
        self.cost = cost
        self.now = 0.0
        self.taken: list[bytes] = []
        self.reading = True
        self.due: list[Callable[[], object]] = []
        self.turns = Turns(
            self.take, self.stop, self.start, lambda call: self.due.append(call), lambda: self.now
        )

    def take(self, data: bytes) -> None:
        self.taken.append(data)
        self.now += self.cost * len(data)

    def stop(self) -> None:
        self.reading = False

    def start(self) -> None:
        self.reading = True

    def next_round(self) -> None:
        due, self.due = self.due, []
        for call in due:
            call()


def test_what_is_small_is_taken_at_once() -> None:
    transport = Transport()
    transport.turns.receive(b"abc")
    assert transport.taken == [b"abc"] and transport.reading and not transport.due


def test_after_a_full_read_others_come_first() -> None:
    transport = Transport()
    transport.turns.receive(bytes(MORE_TO_COME))
    assert len(transport.taken) == 1 and not transport.reading
    transport.next_round()
    assert transport.reading and not transport.due


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
