"""The ferrymq broker: queues, topics, streams and exchanges for AMQP 1.0 clients.

nodes/         what an address can name, messages and their places: no network, no clock (compiled)
filters/       which messages a receiver wants, selectors among them (compiled but for the parser)
addresses/     which address is which node: virtual hosts, aliases, templates (compiled)
connections/   one handler per connection: engine events in, node calls out (compiled)
broker.py      all of these together; what a pass over one read ends with (compiled)
timers.py      what is to happen at a time (compiled)
management/    `$management`: nodes and clients looked at and changed by messages
monitoring/    metrics, whether the broker lives and is ready
config/        the TOML file: what it may say, what is wrong with it, what comes of it
server/        listeners, asyncio protocol, signals, logs
cli/           the `ferrymq` command
"""
