"""An error of a file says which file it is, whatever it was called before."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ferrymq_broker.store.disk import File, RealFile, RealFolder

CALLS: dict[str, Callable[[File], object]] = {
    "read": lambda file: file.read(0, 10),
    "write": lambda file: file.write(0, (b"some", b"more")),
    "fill": lambda file: file.fill(4096),
}


@pytest.mark.parametrize("call", CALLS)
def test_errors_name_the_file(call: str, tmp_path: Path) -> None:
    folder = RealFolder(tmp_path)
    made = folder.create("new-1")
    folder.rename("new-1", "spare-1")
    folder.rename("spare-1", "journal-1")
    opened = folder.open("journal-1")
    for file in (made, opened):
        assert isinstance(file, RealFile)
        os.close(file._descriptor)
        with pytest.raises(OSError) as caught:
            CALLS[call](file)
        assert caught.value.errno == errno.EBADF
        assert str(tmp_path / "journal-1") in str(caught.value)
        file._descriptor = -1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a file that is always full")
def test_a_full_disk_names_the_file() -> None:
    file = RealFile(Path("/dev/full"), os.O_RDWR)
    with pytest.raises(OSError, match=r"/dev/full") as caught:
        file.write(0, (b"some",))
    assert caught.value.errno == errno.ENOSPC
    file.close()
