"""Which line a key is on, whatever TOML allows around it."""

from __future__ import annotations

import pytest

from ferrymq_broker.config.errors import Location
from ferrymq_broker.config.source_locations import SourceLocations

TEXT = '''\
a = 1                                   # line 1
text = """
[queue]
not = "a key" \\"""
"""
list = [                                # line 6
  "[x]", # ]
  '[',
]
[table]                                 # line 10
"quoted key" = 'x # y'
dotted . inner = { x = "}", y = [1] }
[[queue]]
name = "one"
[queue.deep]                            # line 15
key = 1
[[ "queue" ]]
name = \'\'\'
two\'\'\'
[queue.deep]                            # line 20
key = 1
[[host]]
[[host.queue]]
name = "x"
[[host.queue]]                          # line 25
name = "y"
[[host]]
[[host.queue]]
name = "z"
'''


@pytest.mark.parametrize(
    ("location", "line"),
    [
        (("a",), 1),
        (("text",), 2),
        (("list",), 6),
        (("list", 1), 6),
        (("table",), 10),
        (("table", "quoted key"), 11),
        (("table", "dotted"), 12),
        (("table", "dotted", "inner", "x"), 12),
        (("queue", 0), 13),
        (("queue", 0, "name"), 14),
        (("queue", 0, "deep"), 15),
        (("queue", 0, "deep", "key"), 16),
        (("queue", 1), 17),
        (("queue", 1, "name"), 18),
        (("queue", 1, "deep", "key"), 21),
        (("queue", 1, "missing"), 17),
        (("host", 0, "queue", 0, "name"), 24),
        (("host", 0, "queue", 1), 25),
        (("host", 1), 27),
        (("host", 1, "queue", 0, "name"), 29),
        (("nothing",), 0),
        (("not",), 0),
        ((), 0),
    ],
)
def test_lines(location: Location, line: int) -> None:
    assert SourceLocations(TEXT).line(location) == line
