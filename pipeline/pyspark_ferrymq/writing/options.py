"""The options of a sink: the destination of rows, and the delivery guarantee."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark_ferrymq.errors import AmqpOptionError
from pyspark_ferrymq.options import Values, check_names
from pyspark_ferrymq.options.connection import BrokerOptions
from pyspark_ferrymq.options.names import SOURCE
from pyspark_ferrymq.options.option_values import kafka_columns

EXACTLY_ONCE: Final = "exactly-once"
TRANSACTIONAL: Final = "transactional"
AT_LEAST_ONCE: Final = "at-least-once"
DELIVERIES: Final = (EXACTLY_ONCE, TRANSACTIONAL, AT_LEAST_ONCE)

ADDRESS_COLUMN: Final = "address"
# The longest name of a group of fences at the broker, minus room for a prefix.
_LONGEST_APP: Final = 900
_MOST_TASKS: Final = 1_000_000


@dataclass(frozen=True, kw_only=True)
class SinkOptions:
    """The options of a sink. None means "not given"; the names are those of the options."""

    connection: BrokerOptions
    address: str | None = None
    address_column: str = ADDRESS_COLUMN
    kafka: bool = False
    """Whether the columns are those of Kafka."""

    delivery: str = EXACTLY_ONCE
    app_id: str | None = None
    version: int | None = None
    tasks: int | None = None
    deterministic: bool = True
    """Whether a repeated batch has the same rows as the first time."""

    retry_timeout: float = 120.0
    """The seconds that the broker may be unreachable."""

    @classmethod
    def parse(cls, options: Mapping[str, str], streaming: bool) -> SinkOptions:
        """Parse the options. Raises `AmqpOptionError` for the first wrong one."""
        check_names(options)
        given = Values(options)
        for name in given.given(SOURCE):
            raise AmqpOptionError(f"the option {name!r} is only for reading")
        kafka = kafka_columns(given)
        if kafka and given.has("addressColumn"):
            raise AmqpOptionError(
                "the options 'columns' = kafka and 'addressColumn' exclude each other: the column"
                " 'topic' has the address of a row"
            )
        # It means nothing, as with Kafka's sink: a column `headers` is always written.
        given.flag("includeHeaders", False)
        given.at_most_one("address", "addressColumn", "topic")
        connection = BrokerOptions.parse(given)
        delivery = given.choice("delivery", DELIVERIES, EXACTLY_ONCE)
        if delivery == EXACTLY_ONCE and connection.service != "ferrymq":
            raise AmqpOptionError(
                f"option 'service': {connection.service} knows no fences, which 'delivery' ="
                f" {EXACTLY_ONCE} needs; give the option 'delivery' = {AT_LEAST_ONCE}"
            )
        for name in given.given(("txnAppId", "txnVersion", "tasks", "deterministic")):
            if delivery != EXACTLY_ONCE:
                raise AmqpOptionError(
                    f"the option {name!r} is for 'delivery' = {EXACTLY_ONCE}, not {delivery}"
                )
            if streaming and name in ("txnAppId", "txnVersion"):
                raise AmqpOptionError(
                    f"the option {name!r} is only for batches; a query and its batches are"
                    " identified by their ids"
                )
        given.needs("txnAppId", "txnVersion")
        given.needs("txnVersion", "txnAppId")
        app_id = given.text("txnAppId")
        if app_id is not None and (len(app_id) > _LONGEST_APP or "\n" in app_id):
            raise AmqpOptionError(
                f"option 'txnAppId': it has to be one line of at most {_LONGEST_APP} characters"
            )
        retry_timeout = given.milliseconds("write.retryTimeoutMs")
        return cls(
            connection=connection,
            address=given.text("address") or given.text("topic"),
            address_column=given.text("addressColumn") or ("topic" if kafka else ADDRESS_COLUMN),
            kafka=kafka,
            delivery=delivery,
            app_id=app_id,
            version=given.number("txnVersion"),
            tasks=given.number("tasks", 1, _MOST_TASKS),
            deterministic=given.flag("deterministic", True),
            retry_timeout=cls.retry_timeout if retry_timeout is None else retry_timeout / 1000,
        )
