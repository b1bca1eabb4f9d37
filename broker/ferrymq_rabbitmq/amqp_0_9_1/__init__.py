"""AMQP 0-9-1: clients of RabbitMQ that speak it reach the broker's nodes here."""
