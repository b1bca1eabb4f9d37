"""How much memory there is: of the machine, or of the control groups around the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferrymq_broker.config import Config
from ferrymq_broker.config.memory import FALLBACK, available_memory

MEMINFO = "MemTotal:       16384 kB\nMemFree:            12 kB\n"


def system(root: Path, files: dict[str, str]) -> Path:
    """A file system with these files."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "memory"),
    [
        ({}, FALLBACK),
        ({"proc/meminfo": MEMINFO}, 16384 * 1024),
        ({"proc/meminfo": "MemTotal: ?\n"}, FALLBACK),
        # Version 2: no limit, a limit of our group, one of a group around it, one in a container.
        (
            {
                "proc/meminfo": MEMINFO,
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
            },
            16384 * 1024,
        ),
        (
            {
                "proc/meminfo": MEMINFO,
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/memory.max": "1048576\n",
            },
            1048576,
        ),
        (
            {
                "proc/meminfo": MEMINFO,
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/memory.max": "2097152\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
            },
            2097152,
        ),
        (
            {
                "proc/meminfo": MEMINFO,
                "proc/self/cgroup": "0::/../outside\n",
                "sys/fs/cgroup/memory.max": "3145728\n",
            },
            3145728,
        ),
        # Version 1.
        (
            {
                "proc/meminfo": MEMINFO,
                "proc/self/cgroup": "5:cpu,memory:/x\n4:pids:/x\n",
                "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "4194304\n",
            },
            4194304,
        ),
    ],
)
def test_the_least_limit_counts(tmp_path: Path, files: dict[str, str], memory: int) -> None:
    assert available_memory(system(tmp_path, files)) == memory


def test_this_machine_has_some() -> None:
    assert available_memory() > 2**20


def test_an_alarm_is_a_part_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferrymq_broker.config.model.available_memory", lambda: 1000)
    alarms = Config().alarms
    assert (alarms.memory_bytes(), alarms.low_water_bytes()) == (400, 320)
    alarms = Config.model_validate({"alarms": {"memory": "1KiB", "low-water": 100}}).alarms
    assert (alarms.memory_bytes(), alarms.low_water_bytes()) == (1024, 100)
    alarms = Config.model_validate({"alarms": {"memory": 0}}).alarms
    assert alarms.memory_bytes() == 0
