"""The membership of a cluster of brokers: ``[replication]``."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from ferrymq_broker.config.section import Section
from ferrymq_broker.config.units import Count, Duration, Size

# The longest name of a cluster or of a member, in bytes of UTF-8.
_LONGEST_NAME: Final = 200


def _directory(value: object) -> object:
    if value == "":
        raise ValueError("the path is empty; to keep snapshots in the database, leave the key out")
    if isinstance(value, str) and "\0" in value:
        raise ValueError("a path cannot contain NUL")
    return value


def _name(value: str) -> str:
    if not 0 < len(value.encode()) <= _LONGEST_NAME or not value.isprintable():
        raise ValueError(f"a name has 1 to {_LONGEST_NAME} bytes of UTF-8 that can be printed")
    return value


Name = Annotated[str, AfterValidator(_name)]


class Replication(Section):
    """``[replication]``: the cluster whose member the broker is; none without `engine`.

    `url` is a connection string of libpq, a URL or ``key=value`` pairs. `lease` and
    `step_down_after` are in milliseconds. `snapshot_after` is the size of the journal in bytes from
    which a new snapshot is made, `snapshots` how many are kept, and `keep_journal` the age in
    milliseconds of batches that are kept in any case.
    """

    engine: Literal["postgresql"] | None = None
    url: SecretStr | None = None
    cluster: Name = "ferrymq"
    name: Name = Field(default_factory=socket.gethostname)
    lease: Annotated[Duration, Field(ge=1_000, le=3_600_000)] = 10_000
    step_down_after: Annotated[Duration, Field(ge=1_000)] = 60_000
    acknowledge: Literal["database", "both"] = "database"
    snapshot_after: Annotated[Size, Field(ge=1024 * 1024)] = 1024 * 1024 * 1024
    snapshots: Annotated[Count, Field(ge=1, le=1000)] = 2
    snapshot_directory: Annotated[Path, BeforeValidator(_directory)] | None = None
    keep_journal: Duration = 0

    @property
    def is_on(self) -> bool:
        """Whether the broker is a member of a cluster."""
        return self.engine is not None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.engine is None:
            if self.model_fields_set - {"engine"}:
                raise ValueError('nothing is replicated: set engine = "postgresql"')
            return self
        if self.url is None or not self.url.get_secret_value().strip():
            raise ValueError(
                'the database is missing: set url = "postgresql://HOST/DATABASE"; passwords '
                "belong into a file that PGPASSFILE names"
            )
        if self.step_down_after < self.lease:
            raise ValueError("step-down-after is shorter than lease")
        if importlib.util.find_spec("psycopg") is None:
            raise ValueError("replication needs psycopg: pip install 'ferrymq[replicated]'")
        return self
