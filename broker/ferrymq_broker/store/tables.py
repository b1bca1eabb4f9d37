"""The tables of the store.

Every record has the same kind of key: a table, the `id` of its owner, and a `number` unique for
that owner. Ids come from `Changes.new_id` and are not reused while anything has them.

| table | id | number | value |
|---|---|---|---|
| `NODE` | the node | 0 | its description: a map |
| `SUBSCRIPTION` | the topic | id of the queue | its description: a map |
| `BINDING` | the exchange | any, unique | its description: a map |
| `ALIAS` | any, unique | 0 | a map |
| `ENTRY` | the queue | sequence | head of an entry, then the message or the id of its body |
| `STATE` | the queue | sequence | later changes of an entry's state |
| `BODY` | the message | 0 | a message that several entries share |
| `SCHEDULED` | the queue | number | as `ENTRY` |
| `DUPLICATE` | the queue | number | time and identity |
| `PARTITION` | the partition | 0 | stream, number, and the offset of the first record: a map |
| `RECORD` | the partition | offset | head of a record, then the message |
| `TERMINUS` | the terminus | 0 | its description: a map |
| `DELIVERY` | the terminus | number | tag, state, and the message delivered: a map |
| `FENCE` | any, unique | 0 | group, member, target, sequence, rows, digest: a map |
| `HOLD` | any, unique | 0 | stream, holder: a map |
| `HELD` | the hold | partition | the first offset held: a map |
| `RULE` | queue of the subscription | number of the rule | its description: a map |
| `SESSION` | the queue | any, unique | id, state, and when it changed: a map |
| `LEASE` | the queue | any, unique | holder, number, date, messages of a lease: a map |
| `TERM` | 0 | 0 | the term of the last batch, in a member of a cluster: a map |
"""

from __future__ import annotations

from typing import Final

NODE: Final = 1
SUBSCRIPTION: Final = 2
BINDING: Final = 3
ALIAS: Final = 4
ENTRY: Final = 5
STATE: Final = 6
BODY: Final = 7
SCHEDULED: Final = 8
DUPLICATE: Final = 9
PARTITION: Final = 10
RECORD: Final = 11
TERMINUS: Final = 12
DELIVERY: Final = 13
FENCE: Final = 14
HOLD: Final = 15
HELD: Final = 16
RULE: Final = 17
SESSION: Final = 18
TERM: Final = 19
LEASE: Final = 20

NAMES: Final[dict[int, str]] = {
    NODE: "node",
    SUBSCRIPTION: "subscription",
    BINDING: "binding",
    ALIAS: "alias",
    ENTRY: "entry",
    STATE: "state",
    BODY: "body",
    SCHEDULED: "scheduled",
    DUPLICATE: "duplicate",
    PARTITION: "partition",
    RECORD: "record",
    TERMINUS: "terminus",
    DELIVERY: "delivery",
    FENCE: "fence",
    HOLD: "hold",
    HELD: "held",
    RULE: "rule",
    SESSION: "session",
    TERM: "term",
    LEASE: "lease",
}
