"""Names of capture files and folders: there and back, and safe wherever they go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq.capture.names import CaptureName, hour_of, parse_name, stream_folder

names = st.builds(
    lambda hour, partition, first, count: CaptureName(hour, partition, first, first + count),
    # To the year 9999.
    st.integers(0, 70_000_000),
    st.integers(0, 9999),
    st.integers(0, 2**62),
    st.integers(0, 10**6),
)


@given(names)
def test_a_path_says_what_the_name_says(name: CaptureName) -> None:
    assert parse_name(name.path) == name
    assert parse_name(f"s3://bucket/capture/orders/{name.path}") == name


def test_the_layout() -> None:
    name = CaptureName(hour_of(1_772_874_000_000), 3, 0, 19_999)
    assert name.path == "date=2026-03-07/hour=09/p3-0-19999.parquet"
    assert name.next == 20_000


@pytest.mark.parametrize(
    "path",
    [
        "p0-0-1.parquet",
        "date=2026-03-07/hour=09/_tmp-p0-0.parquet",
        "date=2026-03-07/hour=09/p0-5-4.parquet",
        "date=2026-03-07/hour=09/p0-00-4.parquet",
        "date=2026-03-07/hour=24/p0-0-4.parquet",
        "date=2026-02-30/hour=09/p0-0-4.parquet",
        "date=2026-03-07/hour=9/p0-0-4.parquet",
        "date=2026-03-07/hour=09/p0-0-4.parquet.crc",
    ],
)
def test_other_paths_are_no_capture_files(path: str) -> None:
    assert parse_name(path) is None


@given(st.text(min_size=1, max_size=300))
def test_folders_are_safe(name: str) -> None:
    folder = stream_folder(name)
    assert folder.isascii()
    assert not set(folder) & set('/\\:*?"<>|={}[]$ \0')
    assert folder[0] not in "_.-"
    assert 0 < len(folder) <= 200


@given(st.text(min_size=1, max_size=300), st.text(min_size=1, max_size=300))
def test_different_streams_have_different_folders(one: str, other: str) -> None:
    assert (stream_folder(one) == stream_folder(other)) == (one == other)


def test_plain_names_stay_as_they_are() -> None:
    assert stream_folder("orders.eu-1_new") == "orders.eu-1_new"
    assert stream_folder("a/b=c") == "a%2Fb%3Dc"
    assert stream_folder("_hidden") == "%5Fhidden"
