"""The record of the term, which the first batch of each term sets.

With it, the records say which batch of which term was applied last. So a member finds out whether
its records follow from the batches that its cluster has.
"""

from __future__ import annotations

from typing import Final

from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.keys import encode_key
from ferrymq_broker.store.map_values import decode_map, encode_map
from ferrymq_broker.store.records import Records
from ferrymq_broker.store.tables import TERM

_KEY: Final = "term"


def put_term(changes: Changes, term: int) -> None:
    """Write the term to the batch that is being filled."""
    changes.put(TERM, 0, 0, encode_map({_KEY: term}))


def read_term(records: Records) -> int:
    """Return the term of the last batch in the records, 0 if they never were a member's.

    Raises `StoreDamaged`.
    """
    value = records.get(TERM, 0, 0)
    if value is None:
        return 0
    term = decode_map(value).get(_KEY)
    if not isinstance(term, int):
        raise StoreDamaged("the record of the term has no term")
    return term


def drop_term(records: Records) -> None:
    """Delete the record of the term from records that no cluster has any more. Raises `OSError`."""
    records.begin()
    records.drop(encode_key(TERM, 0, 0))
    records.commit(records.applied)
