"""The ferrymq broker: queues, topics, streams and exchanges for AMQP 1.0 clients.

nodes/         queues, topics, streams, exchanges, and messages: no network, no clock (compiled)
filters/       filters of receivers, selectors among them (compiled, except the parser)
addresses/     from an address to its node: virtual hosts, aliases, templates (compiled)
connections/   one handler per connection: engine events in, node calls out (compiled)
broker.py      virtual hosts and connections together; the passes of work (compiled)
timers.py      timers of nodes and transactions (compiled)
management/    `$management`: requests that list and change nodes and clients
monitoring/    metrics, liveness and readiness by HTTP
config/        the TOML file: its settings, its checks, and how it is applied
server/        listeners, asyncio protocol, signals, logs
cli/           the `ferrymq` command
"""
