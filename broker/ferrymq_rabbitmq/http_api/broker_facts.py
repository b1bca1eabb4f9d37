"""Facts about the broker as a whole: the overview, its node, and health checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ferrymq import __version__
from ferrymq_broker.server.http_handlers import HttpHost
from ferrymq_broker.values.policy import EXCHANGE_TYPES
from ferrymq_rabbitmq.http_api.host_view import NODE, HostView, Json
from ferrymq_rabbitmq.management.request_refused import RequestRefused

# The schemes of listeners for each protocol of a health check.
_PROTOCOLS: Final = {
    "amqp": ("amqp", "any"),
    "amqp/ssl": ("amqps",),
    "amqps": ("amqps",),
    "http": ("any", "ws"),
    "https": ("wss",),
    "http/web-amqp": ("ws", "any"),
}


class UnhealthyError(Exception):
    """An exception: a health check has failed."""

    def __init__(self, reason: str, **facts: object) -> None:
        super().__init__(reason)
        self.facts = {"status": "failed", "reason": reason, **facts}


class BrokerFacts:
    """The facts about a broker."""

    def __init__(self, host: HttpHost) -> None:
        self._host = host
        self._broker = host.broker

    @property
    def version(self) -> str:
        """The version of RabbitMQ that clients are told."""
        return str(getattr(self._broker.default.personality, "told_version", ""))

    def overview(self, views: Sequence[HostView]) -> Json:
        """Return what ``overview`` says, as far as the views go."""
        sums: tuple[Json, Json, Json] = ({}, {}, {})
        for view in views:
            for total, part in zip(sums, view.totals(), strict=True):
                for key, count in part.items():
                    total[key] = total.get(key, 0) + count
        objects, messages, stats = sums
        told = self.version
        return {
            "management_version": told,
            "rabbitmq_version": told,
            "product_name": "ferrymq",
            "product_version": __version__,
            "erlang_version": "",
            "erlang_full_version": "",
            "rates_mode": "none",
            "cluster_name": NODE,
            "node": NODE,
            "exchange_types": [{"name": type, "enabled": True} for type in EXCHANGE_TYPES],
            "object_totals": objects,
            "queue_totals": messages,
            "message_stats": stats,
            "churn_rates": {},
            "listeners": [
                {"node": NODE, "protocol": each.scheme, "ip_address": each.host, "port": each.port}
                for each in self._host.addresses()
            ],
            "contexts": [],
            "statistics_db_event_queue": 0,
            "disable_stats": False,
            "enable_queue_totals": False,
            "is_op_policy_updating_enabled": False,
        }

    def node(self) -> Json:
        """Return the only node of the cluster."""
        broker = self._broker
        return {
            "name": NODE,
            "type": "disc",
            "running": True,
            "being_drained": False,
            "rates_mode": "none",
            "mem_used": int(broker.agenda.held),
            "mem_alarm": "memory" in broker.alarms,
            "disk_free_alarm": "disk" in broker.alarms,
            "partitions": [],
            "applications": [],
            "enabled_plugins": [],
        }

    def check(self, check: Sequence[str]) -> object:
        """Return the answer to a health check. Raises `UnhealthyError`, and `RequestRefused` for an
        unknown one."""
        match check:
            case ["alarms" | "local-alarms"]:
                alarms = sorted(self._broker.alarms)
                if alarms:
                    raise UnhealthyError(
                        f"alarms: {', '.join(alarms)}",
                        alarms=[{"resource": each, "node": NODE} for each in alarms],
                    )
                return {"status": "ok"}
            case [
                "ready-to-serve-clients"
                | "is-in-service"
                | "virtual-hosts"
                | "node-is-quorum-critical"
                | "node-is-mirror-sync-critical"
            ]:
                return {"status": "ok"}
            case ["port-listener", text]:
                ports = [address.port for address in self._host.addresses()]
                if not text.isdigit() or int(text[:6]) not in ports:
                    raise UnhealthyError("No active listener", missing=text, ports=ports)
                return {"status": "ok", "port": int(text)}
            case ["protocol-listener", protocol]:
                schemes = [address.scheme for address in self._host.addresses()]
                wanted = _PROTOCOLS.get(protocol.lower(), ())
                if not any(scheme in wanted for scheme in schemes):
                    raise UnhealthyError("No active listener", missing=protocol, protocols=schemes)
                return {"status": "ok", "protocol": protocol}
        raise RequestRefused.missing("health check", "/".join(check))
