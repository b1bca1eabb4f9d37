"""The partition of a key is the one that the vendor's clients choose."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq_servicebus.partition_hash import hash_of_key, lookup3, partition_of_hub

resolver = pytest.importorskip("azure.eventhub._buffered_producer._partition_resolver")

# The vendor's function takes the code points of a text for bytes.
ASCII = st.text(st.characters(max_codepoint=127), max_size=60)


@given(ASCII)
def test_the_hash_of_a_key(key: str) -> None:
    data = key.encode()
    assert hash_of_key(data) == resolver.generate_hash_code(key)
    if key:
        assert lookup3(data) == resolver.compute_hash(key)


@given(st.binary(max_size=60), st.integers(1, 2048))
def test_the_partition_is_the_absolute_remainder_with_the_sign_of_the_hash(
    key: bytes, partitions: int
) -> None:
    assert partition_of_hub(key, partitions) == abs(int(abs(hash_of_key(key)) % partitions))
    assert 0 <= partition_of_hub(key, partitions) < partitions


def test_known_keys() -> None:
    """With 16 partitions, a positive hash and a negative one."""
    assert hash_of_key(b"7149583486996073602") == resolver.generate_hash_code("7149583486996073602")
    found = {partition_of_hub(f"key-{number}".encode(), 16) for number in range(200)}
    assert found == set(range(16))
