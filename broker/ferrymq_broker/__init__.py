"""The ferrymq broker: queues that AMQP 1.0 clients publish to and consume from.

nodes/         messages, queue entries, queues: no network, no clock (compiled)
broker.py      which address is which node; what a pass over one read ends with (compiled)
connections/   one handler per connection: engine events in, node calls out (compiled)
server/        listeners, asyncio protocol, signals, logs
config/        the TOML file and what it may say
cli/           the `ferrymq` command
"""
