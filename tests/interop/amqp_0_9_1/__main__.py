"""Clients of AMQP 0-9-1 on the broker, feature by feature, and the page that the results make.

python -m tests.interop.amqp_0_9_1 run [--client CLIENT ...] [--case NAME ...] [--broker BROKER]
python -m tests.interop.amqp_0_9_1 page
python -m tests.interop.amqp_0_9_1 record

`run` writes tests/interop/amqp_0_9_1/results.json, and keeps there what it has of other clients;
with `--case`, or on RabbitMQ, it writes nothing. `page` writes
docs/broker/amqp-0-9-1-compatibility.md from it. `record` plays the scripts on RabbitMQ, and writes
tests/interop/amqp_0_9_1/transcripts.json.
"""

from __future__ import annotations

import sys

from tests.interop.amqp_0_9_1.clients import BROKERS
from tests.interop.amqp_0_9_1.differences import record
from tests.interop.amqp_0_9_1.suite import suite_on


def main() -> int:
    """Run the command line; return the exit status."""
    if sys.argv[1:] == ["record"]:
        record()
        return 0
    parser, running = suite_on(None).parser(__doc__)
    running.add_argument("--broker", default="ferrymq", choices=list(BROKERS))
    arguments = parser.parse_args()
    if arguments.command == "page":
        return suite_on(None).main(arguments)
    broker = BROKERS[arguments.broker]()
    try:
        return suite_on(broker, arguments.broker).main(
            arguments, keep=arguments.broker == "ferrymq"
        )
    finally:
        broker.close()


if __name__ == "__main__":
    sys.exit(main())
