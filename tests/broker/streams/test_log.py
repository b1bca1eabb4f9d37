"""The log against a plain list."""

from __future__ import annotations

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from ferrymq_broker.nodes.message import BrokerMessage
from ferrymq_broker.nodes.streams.partition_log import MemoryLog
from ferrymq_broker.nodes.streams.segments import ENDLESS, LogSegment
from ferrymq_broker.slices import Slices

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 30)),
        st.tuples(st.just("later"), st.integers(-5, 20)),
        st.tuples(st.just("trim"), st.just(0)),
    ),
    max_size=300,
)


@given(
    steps=STEPS,
    segment_bytes=st.integers(1, 60),
    records=st.sampled_from([1, 3, ENDLESS]),
    span=st.sampled_from([1, 10, ENDLESS]),
)
def test_a_log_finds_what_a_list_has(
    steps: list[tuple[str, int]], segment_bytes: int, records: int, span: int
) -> None:
    log = MemoryLog(segment_bytes, records, span)
    now = 1000
    there: list[tuple[int, bytes]] = []
    first = 0
    for step, value in steps:
        if step == "append":
            payload = b"%03d" % len(there) * value
            message = BrokerMessage(payload, len(there) % 3, 0)
            message.origin = value
            log.append(message, now, now)
            there.append((max(now, there[-1][0]) if there else now, payload))
        elif step == "later":
            now += value
        elif log.oldest() is not None:
            oldest = log.oldest()
            assert isinstance(oldest, LogSegment) and oldest.first == first
            first += oldest.count
            assert log.trim(Slices()) == oldest.bytes
            assert oldest.dropped
    assert (log.first, log.next) == (first, len(there))
    assert log.bytes == sum(len(payload) for _, payload in there[first:])
    for offset in range(first, len(there)):
        segment = log.find(offset)
        index = offset - segment.first
        assert 0 <= index < segment.count
        assert (segment.times[index], segment.payloads[index]) == there[offset]
        assert segment.origins[index] == len(there[offset][1]) // 3
        assert (segment.formats or {}).get(index, 0) == offset % 3
        assert segment.count == 1 or (segment.bytes <= segment_bytes and segment.count <= records)
    end = log.find(log.next)
    assert end.first + end.count == log.next
    times = [time for time, _ in there[first:]]
    for time in {0, *times, *(time + 1 for time in times)}:
        assert log.offset_at(time) == first + bisect_left(times, time)
    # One segment leads to the next, without gaps.
    expected = first
    while expected < len(there):
        segment = log.find(expected)
        assert segment.first == expected
        expected += segment.count
    assert expected == len(there)
