"""The metrics of a member of a cluster for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ferrymq_broker.replication.shared_journal import LEADER, STANDBY, SUSPENDED

_GAUGES: Final = (
    ("term", "term", "Term of the lease that was seen last"),
    ("lease_seconds", "lease-seconds", "Seconds until the end of the lease, negative after it"),
    ("lag_batches", "lag-batches", "Batches of the journal that the records lack"),
    ("journal_bytes", "journal-bytes", "Bytes of batches in the shared journal"),
    ("snapshot_bytes", "snapshot-bytes", "Bytes of snapshots in the shared journal"),
)
_COUNTERS: Final = (
    ("elections", "elections", "Times that this member became the leader"),
    ("suspended_seconds", "suspended-seconds", "Seconds in which the leader wrote nothing"),
)


class ReplicationCollector(Collector):
    """A collector of what `describe` returns of the cluster and of this member."""

    def __init__(self, describe: Callable[[], dict[str, object]]) -> None:
        self._describe = describe

    def collect(self) -> Iterable[Metric]:
        """Yield all metric families."""
        found = self._describe()
        role = GaugeMetricFamily(
            "ferrymq_replication_role", "1 for what the member is", labels=["role"]
        )
        for name in (STANDBY, LEADER, SUSPENDED):
            role.add_metric([name], float(found["role"] == name))
        yield role
        for name, key, text in _GAUGES:
            yield GaugeMetricFamily(f"ferrymq_replication_{name}", text, value=_number(found[key]))
        for name, key, text in _COUNTERS:
            yield CounterMetricFamily(
                f"ferrymq_replication_{name}", text, value=_number(found[key])
            )


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
